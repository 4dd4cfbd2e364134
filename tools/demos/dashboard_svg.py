"""A Grafana dashboard of the chart as an SVG: the panels on its grid, with the samples that Prometheus has for their queries.

Knows the three kinds of panels that tools/generators/dashboards.py writes: numbers, lines over time, and tables. Units, legends and
stacking follow the JSON; Grafana's interactive parts are left out. The SVG has neither scripts nor references. Called by
dashboard_pictures.py.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any, Final

Json = dict[str, Any]

COLUMN: Final = 54
"""Width of one of the 24 columns of the grid."""
LINE: Final = 36
"""Height of a line of the grid."""
GAP: Final = 8
TOP: Final = 56
TITLE: Final = 26
AXIS: Final = 72
"""Width of the labels of a value axis."""
LEGEND: Final = 16
LEGENDS: Final = 6
"""Most entries of a legend; one more line says how many are left out."""
ROWS: Final = 7
"""Most lines of a table."""
COLORS: Final = (
    "#73bf69",
    "#f2cc0c",
    "#5794f2",
    "#ff780a",
    "#f2495c",
    "#b877d9",
    "#37872d",
    "#1f60c4",
    "#fa6400",
    "#8f3bb8",
)
"""Of series, in the order in which Grafana gives them."""
STYLE: Final = """
svg { font: 12px Inter, system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.page { fill: #f4f5f5; } .panel { fill: #fff; stroke: #dcdde0; } .ink { fill: #24292e; } .dim { fill: #5f6672; } .line { stroke: #e3e5e8; }
.head { font-size: 20px; font-weight: 600; } .row { font-size: 14px; font-weight: 600; } .title { font-weight: 600; }
.number { font-size: 34px; font-weight: 500; } .series { fill: none; stroke-width: 1.5; stroke-linejoin: round; } .area { fill-opacity: .3; }
"""


@dataclass(frozen=True)
class Series:
    """Samples of one time series, oldest first: Unix time in seconds, and the value."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Answer:
    """The answer of Prometheus for one query of a panel."""

    legend: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float


def svg(dashboard: Json, answers: Mapping[int, Sequence[Answer]], start: float, end: float) -> str:
    """The whole dashboard; `answers` by the id of the panel, `start` and `end` in Unix time of the lines."""
    height = TOP + LINE * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) + GAP
    width = 24 * COLUMN + GAP
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(dashboard["title"])}</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        text(GAP + 4, 34, dashboard["title"], "ink head"),
    ]
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        box = Box(GAP + at["x"] * COLUMN, TOP + at["y"] * LINE, at["w"] * COLUMN - GAP, at["h"] * LINE - GAP)
        if panel["type"] == "row":
            body.append(text(box.x + 4, box.y + 20, panel["title"], "ink row"))
            continue
        body += [
            f'<rect class="panel" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="3"/>',
            text(box.x + 8, box.y + 18, panel["title"], "ink title"),
        ]
        inner = Box(box.x + 8, box.y + TITLE, box.width - 16, box.height - TITLE - 8)
        given = answers.get(panel["id"], ())
        if not any(answer.series for answer in given):
            body.append(text(inner.x + inner.width / 2, inner.y + inner.height / 2, "No data", "dim", anchor="middle"))
        elif panel["type"] == "stat":
            body.extend(_stat(panel, given, inner))
        elif panel["type"] == "table":
            body.extend(_table(panel, given, inner))
        else:
            body.extend(_lines(panel, given, inner, start, end))
    return "\n".join([*body, "</svg>", ""])


def text(x: float, y: float, words: str, style: str, *, anchor: str = "start") -> str:
    """One line of text."""
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def formatted(value: float, unit: str) -> str:
    """A value in a unit of Grafana: three digits, with the prefix or the unit of time that fits."""
    if not math.isfinite(value):
        return str(value)
    if unit == "percentunit":
        return f"{_digits(100 * value)}%"
    if unit == "s":
        for factor, name in ((86_400, "day"), (3600, "hour"), (60, "min"), (1, "s"), (1e-3, "ms")):
            if abs(value) >= factor:
                return f"{_digits(value / factor)} {name}"
        return "0 s" if value == 0 else f"{_digits(value * 1e6)} µs"
    step, names, end = (
        (1024, ("B", "KiB", "MiB", "GiB", "TiB"), "") if unit == "bytes" else (1000, ("", "K", "Mil"), SUFFIXES[unit])
    )
    power = min(len(names) - 1, int(math.log(abs(value), step)) if abs(value) >= step else 0)
    return " ".join(filter(None, (_digits(value / step**power), names[power], end)))


DURATIONS: Final = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
"""Steps of an axis of durations, in seconds."""
SUFFIXES: Final = {"short": "", "ops": "ops/s", "wps": "wr/s"}


def _digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _stat(panel: Json, answers: Sequence[Answer], box: Box) -> Iterator[str]:
    value = answers[0].series[0].samples[-1][1]
    words = formatted(value, _unit(panel))
    yield text(box.x + box.width / 2, box.y + box.height / 2 + 14, words, "ink number", anchor="middle")


def _table(panel: Json, answers: Sequence[Answer], box: Box) -> Iterator[str]:
    series = answers[0].series
    columns = [*dict.fromkeys(label for each in series for label in each.labels if label != "__name__"), "Value"]
    width = box.width / len(columns)
    for number, column in enumerate(columns):
        yield text(box.x + number * width, box.y + 16, column, "dim title")
    for line, each in enumerate(series[:ROWS], start=1):
        cells = [
            *(each.labels.get(column, "") for column in columns[:-1]),
            formatted(each.samples[-1][1], _unit(panel)),
        ]
        y = box.y + 16 + line * 26
        yield f'<path class="line" d="M{box.x:g},{y - 18:g}h{box.width:g}"/>'
        for number, cell in enumerate(cells):
            yield text(box.x + number * width, y, cell, "ink")
    if len(series) > ROWS:
        yield text(box.x, box.y + 16 + (ROWS + 1) * 26, f"and {len(series) - ROWS} more", "dim")


def _lines(panel: Json, answers: Sequence[Answer], box: Box, start: float, end: float) -> Iterator[str]:
    named = [(_legend(answer.legend, each.labels), each.samples) for answer in answers for each in answer.series]
    is_stacked = "stacking" in panel["fieldConfig"]["defaults"].get("custom", {})
    curves = list(_stacked(named)) if is_stacked else [(name, samples, ()) for name, samples in named]
    shown = min(len(named), LEGENDS)
    below = LEGEND * (math.ceil(shown / 2) + (len(named) > LEGENDS))
    plot = Box(box.x + AXIS, box.y + 4, box.width - AXIS - 4, box.height - 24 - below)
    most = max((value for _, samples, _ in curves for _, value in samples if math.isfinite(value)), default=0.0)
    step = _step(most, _unit(panel))
    ceiling = max(step, step * math.ceil(most / step - 1e-9))

    def x(at: float) -> float:
        return round(plot.x + plot.width * (at - start) / (end - start), 1)

    def y(value: float) -> float:
        return round(plot.y + plot.height * (1 - min(max(value, 0.0), ceiling) / ceiling), 1)

    for tick in range(round(ceiling / step) + 1):
        yield f'<path class="line" d="M{plot.x:g},{y(tick * step):g}h{plot.width:g}"/>'
        yield text(plot.x - 6, y(tick * step) + 4, formatted(tick * step, _unit(panel)), "dim", anchor="end")
    minutes = max(1, math.ceil((end - start) / 60 / 6))
    for minute in range(0, int((end - start) / 60) + 1, minutes):
        yield text(x(start + 60 * minute), plot.y + plot.height + 16, f"{minute}:00", "dim", anchor="middle")
    for number, (name, samples, floor) in enumerate(curves):
        color = COLORS[number % len(COLORS)]
        for part in _unbroken(samples):
            points = " ".join(f"{x(at):g},{y(value):g}" for at, value in part)
            if floor:
                bottom = dict(floor)
                under = " ".join(f"{x(at):g},{y(bottom[at]):g}" for at, _ in reversed(part))
                yield f'<path class="area" fill="{color}" d="M{points} {under}z"/>'
            yield f'<path class="series" stroke="{color}" d="M{points}"/>'
        if number < LEGENDS:
            left = box.x + (number % 2) * box.width / 2
            line = plot.y + plot.height + 24 + LEGEND * (number // 2 + 1) - 4
            yield f'<path stroke="{color}" stroke-width="3" d="M{left:g},{line - 4:g}h12"/>'
            yield text(left + 18, line, name[: int(box.width / 2 / 6.6)], "ink")
    if len(named) > LEGENDS:
        yield text(box.x, box.y + box.height - 2, f"and {len(named) - LEGENDS} more", "dim")


def _stacked(
    named: Iterable[tuple[str, tuple[tuple[float, float], ...]]],
) -> Iterator[tuple[str, tuple[tuple[float, float], ...], tuple[tuple[float, float], ...]]]:
    below: dict[float, float] = {}
    for name, samples in named:
        floor = tuple((at, below.get(at, 0.0)) for at, _ in samples)
        for at, value in samples:
            below[at] = below.get(at, 0.0) + (value if math.isfinite(value) else 0.0)
        yield name, tuple((at, below[at]) for at, _ in samples), floor


def _unbroken(samples: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """Parts without a gap: a series that ended and began again is not drawn between."""
    if not samples:
        return
    usual = min((later[0] - earlier[0] for earlier, later in pairwise(samples)), default=1.0)
    part: list[tuple[float, float]] = []
    for at, value in samples:
        if part and (at - part[-1][0] > 1.5 * usual or not math.isfinite(value)):
            yield part
            part = []
        if math.isfinite(value):
            part.append((at, value))
    if part:
        yield part


def _step(most: float, unit: str) -> float:
    """Between two lines of the grid, at most five of them: 1, 2 or 5 times a power of ten.

    Of bytes a power of two, and of durations between 10 s and a day a part of a minute or an hour.
    """
    if most <= 0:
        return 1.0
    rough = most / 4
    if unit == "bytes":
        return 2.0 ** math.ceil(math.log2(rough))
    if unit == "s" and DURATIONS[0] < rough <= DURATIONS[-1]:
        return next(float(step) for step in DURATIONS if step >= rough)
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


def _unit(panel: Json) -> str:
    unit: str = panel["fieldConfig"]["defaults"]["unit"]
    return unit


def _legend(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found[1], ""), template)
