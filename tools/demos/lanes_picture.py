"""A moving picture of lanes: what each workload wanted and had, drawn from left to right as it happened.

Takes the answer of `/api/lanes` of `raytide ui` and returns an SVG without scripts and without references: the shapes of the page,
revealed by a style sheet. Who prefers no motion sees the whole picture at once; colors follow the reader's light or dark mode. Called
by ui_pictures.py.
"""

from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from typing import Any, Final

Json = dict[str, Any]

WIDTH: Final = 1000
NAMES: Final = 210
"""Width of the column with the names."""
RIGHT: Final = 12
TOP: Final = 34
ROW: Final = 46
BOTTOM: Final = 40
PAD: Final = 7
CHART: Final = WIDTH - NAMES - RIGHT
REVEALED_S: Final = 14
HELD_S: Final = 4
CHARACTER: Final = 6.2
"""Width of a character of a label, about."""
TICKS: Final = 6
STYLE: Final = """
svg { font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.page { fill: #fff; } .line { stroke: #dfe3e6; } .ink { fill: #182026; } .dim { fill: #56616a; } .now { stroke: #0b6584; }
.RayCluster.ready { fill: #e08a45; } .TrainingJob.ready { fill: #8b70d8; }
.RayCluster.wanted { stroke: #a44e0d; } .TrainingJob.wanted { stroke: #51349f; }
.hatch { stroke: #c4882b; } .halo { stroke: #fff; } .mark { fill: #182026; stroke: #fff; }
.ready { fill-opacity: .72; } .wanted { fill: none; stroke-width: 1.75; } .name { font-weight: 600; }
.halo { paint-order: stroke; stroke-width: 4px; stroke-linejoin: round; }
@media (prefers-color-scheme: dark) {
  .page { fill: #181d20; } .line { stroke: #2a3237; } .ink { fill: #e7ecef; } .dim { fill: #9fabb3; } .now { stroke: #6cc3e2; }
  .RayCluster.ready { fill: #d98341; } .TrainingJob.ready { fill: #8f74e0; }
  .RayCluster.wanted { stroke: #ffb27a; } .TrainingJob.wanted { stroke: #c5b3ff; }
  .hatch { stroke: #a97a2c; } .halo { stroke: #181d20; } .mark { fill: #e7ecef; stroke: #181d20; }
}
@media (prefers-reduced-motion: no-preference) {
  .shutter { animation: open %(whole)ds linear infinite; transform-origin: %(left)dpx 0; }
  .pointer { animation: move %(whole)ds linear infinite; }
}
@keyframes open { 0%% { transform: scaleX(0); } %(part).1f%% { transform: scaleX(1); } 100%% { transform: scaleX(1); } }
@keyframes move { 0%% { transform: translateX(-%(chart)dpx); } %(part).1f%% { transform: none; } 100%% { transform: none; } }
"""


def svg(found: Json) -> str:
    """The picture of these lanes, whose steps begin and end within the recording."""
    items = found["items"]
    start, end = found["recordedSince"], max(found["at"], found["recordedSince"] + 1)
    height = TOP + len(items) * ROW + BOTTOM

    def x(at: float) -> float:
        return round(NAMES + CHART * (min(max(at, start), end) - start) / (end - start), 1)

    style = STYLE % {
        "whole": REVEALED_S + HELD_S,
        "part": 100 * REVEALED_S / (REVEALED_S + HELD_S),
        "left": NAMES,
        "chart": CHART,
    }
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title(items))}</title>',
        f"<style>{style}</style>",
        "<defs>",
        '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">',
        '<path class="hatch" d="M0,0V7" stroke-width="3" stroke-opacity=".8"/>',
        "</pattern>",
        f'<clipPath id="shutter"><rect class="shutter" x="{NAMES}" width="{CHART + 1}" height="{height}"/></clipPath>',
        "</defs>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
        *axis(start, end, height),
        *names(items),
        '<g clip-path="url(#shutter)">',
    ]
    for number, item in enumerate(items):
        body += lane(item, TOP + number * ROW, x, end)
    body += [
        "</g>",
        f'<path class="now pointer" d="M{NAMES + CHART},{TOP}V{height - BOTTOM}" stroke-width="1.5"/>',
        *legend(height),
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def title(items: Iterable[Json]) -> str:
    """What a screen reader says."""
    shown = (f"{each['namespace']}/{each['name']}, {each['ready']} of {each['wanted']}" for each in items)
    return f"Ready pods of those wanted over time: {'; '.join(shown)}"


def axis(start: int, end: int, height: int) -> Iterator[str]:
    """Lines of time, in minutes and seconds since the beginning."""
    for number in range(TICKS + 1):
        at = round((end - start) * number / TICKS)
        left = NAMES + CHART * number / TICKS
        anchor = "middle" if number < TICKS else "end"
        yield f'<path class="line" d="M{left:.1f},{TOP}V{height - BOTTOM}"/>'
        yield f'<text class="dim" x="{left:.1f}" y="{TOP - 12}" text-anchor="{anchor}">{at // 60}:{at % 60:02}</text>'


def names(items: Iterable[Json]) -> Iterator[str]:
    """The names on the left, with their kinds."""
    for number, each in enumerate(items):
        top = TOP + number * ROW
        yield f'<path class="line" d="M0,{top}H{WIDTH}"/>'
        yield f'<text class="ink name" x="16" y="{top + 20}">{escape(each["namespace"])}/{escape(each["name"])}</text>'
        yield f'<text class="dim" x="16" y="{top + 36}">{escape(each["kind"])}</text>'


def lane(item: Json, top: int, x: Any, end: int) -> Iterator[str]:
    """What one workload has, filled; what it wants, outlined; hatched between, with the reason; marks where it gave or received."""
    pieces = spans(item["steps"], end)
    if not pieces:
        return
    highest = max(1, *(max(wanted, ready) for _, _, wanted, ready, _ in pieces))
    foot, tall = top + ROW - PAD, ROW - 2 * PAD

    def y(count: int) -> float:
        return round(foot - tall * count / highest, 1)

    kind = escape(item["kind"])
    for begin, until, wanted, ready, _ in pieces:
        if ready:
            yield rect(f'class="{kind} ready"', (x(begin), x(until)), (y(ready), foot))
        if wanted > ready:
            yield rect('fill="url(#hatch)"', (x(begin), x(until)), (y(wanted), y(ready)))
    outline = f"M{x(pieces[0][0])},{y(pieces[0][2])}" + "".join(
        f"V{y(wanted)}H{x(until)}" for _, until, wanted, _, _ in pieces
    )
    yield f'<path class="{kind} wanted" d="{outline}"/>'
    for reason, same in groupby(pieces, key=lambda piece: piece[4]):
        parts = list(same)
        left, room = x(parts[0][0]), x(parts[-1][1]) - x(parts[0][0])
        if reason and room > len(reason) * CHARACTER + 12:
            yield f'<text class="ink halo" x="{left + 6}" y="{top + ROW / 2 + 4}">{escape(reason)}</text>'
    for mark in item["marks"]:
        at = min(x(mark["at"]), NAMES + CHART - 6)
        shape = f"M{at - 5.5},{top + 3}h11l-5.5,9z" if mark["gave"] else f"M{at - 5.5},{top + 12}h11l-5.5,-9z"
        yield f'<path class="mark" d="{shape}"><title>{escape(mark["text"])}</title></path>'


def spans(steps: Iterable[list[Any]], end: int) -> list[tuple[int, int, int, int, str]]:
    """Beginning, end, wanted, ready and reason of each step; none is empty."""
    steps = list(steps)
    ends = [each[0] for each in steps[1:]] + [end] * bool(steps)
    return [
        (at, until, wanted, ready, reason)
        for (at, wanted, ready, reason), until in zip(steps, ends, strict=True)
        if until > at
    ]


def rect(look: str, across: tuple[float, float], down: tuple[float, float]) -> str:
    """A rectangle from left to right and from top to bottom."""
    (left, right), (top, bottom) = across, down
    return f'<rect {look} x="{left}" y="{top}" width="{right - left:.1f}" height="{bottom - top:.1f}"/>'


def legend(height: int) -> Iterator[str]:
    """What the shapes mean."""
    base = height - 15
    yield f'<rect class="RayCluster ready" x="16" y="{base - 10}" width="11" height="12"/>'
    yield f'<rect class="TrainingJob ready" x="27" y="{base - 10}" width="11" height="12"/>'
    yield f'<text class="dim" x="44" y="{base}">ready: RayCluster, TrainingJob</text>'
    yield f'<path class="RayCluster wanted" d="M238,{base - 4}h22"/><text class="dim" x="266" y="{base}">wanted</text>'
    yield f'<rect fill="url(#hatch)" x="326" y="{base - 10}" width="22" height="12"/>'
    yield f'<text class="dim" x="354" y="{base}">missing, with the reason</text>'
    yield f'<path class="mark" d="M512,{base - 8}h11l-5.5,9z"/><path class="mark" d="M526,{base + 1}h11l-5.5,-9z"/>'
    yield f'<text class="dim" x="544" y="{base}">gave, received capacity</text>'
    yield f'<text class="dim" x="{WIDTH - RIGHT}" y="{base}" text-anchor="end">minutes and seconds</text>'
