"""Drawings of boxes, arrows and bars as SVG, in the style of the documentation.

A `Diagram` is a description; `draw` makes the file: light and dark by the reader's preference, with a title and a text
alternative, without scripts and without requests. tests/unit/tools/test_diagrams.py compares each file with its description, and
checks that texts fit their boxes, that boxes do not overlap and that no arrow crosses one. Used by architecture_picture.py and
concept_pictures.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

TITLE_SIZE: Final = 14
TEXT_SIZE: Final = 11
LINE_HEIGHT: Final = 16
WIDTH_PER_SIZE: Final = 0.58
"""Width of one character of the sans-serif font, in font sizes; measured in Chromium with DejaVu Sans, which is wide."""


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the system; all positions and sizes are in pixels."""

    title: str
    x: int
    y: int
    width: int
    height: int
    lines: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """Modules and packages below `operator/src/raytide/` that it stands for."""
    is_pure: bool = False
    """Whether its modules are functions of values, as the contracts in pyproject.toml enforce."""
    is_external: bool = False
    title_size: int = TITLE_SIZE
    kind: str = ""
    """Class of its frame and area, if it is none of the above: `bad` or `good`."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A way of data: through points, with a label at a position of its own."""

    points: tuple[tuple[int, int], ...]
    label: str = ""
    at: tuple[int, int] = (0, 0)
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class Label:
    """A text beside the boxes."""

    x: int
    y: int
    text: str
    size: int = TEXT_SIZE
    anchor: str = "start"
    is_bold: bool = False


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle without a text: a frame around boxes, a bar or a line of no height."""

    kind: str
    """`frame`, `line`, `outline`, or `bar1` to `bar3`."""
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Diagram:
    """One file."""

    file: Path
    title: str
    description: str
    """What a reader who does not see it is told."""
    width: int
    height: int
    boxes: tuple[Box, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    labels: tuple[Label, ...] = ()
    areas: tuple[Area, ...] = ()


STYLE: Final = """
text { font-family: sans-serif; fill: #1f2328; }
.box { fill: #f6f8fa; stroke: #57606a; }
.pure, .good { fill: #dafbe1; stroke: #1a7f37; }
.bad { fill: #ffebe9; stroke: #cf222e; }
.external { fill: #ffffff; stroke: #57606a; stroke-dasharray: 4 3; }
.frame { fill: none; stroke: #8c959f; stroke-dasharray: 2 3; }
.outline { fill: none; stroke: #57606a; }
.bar1 { fill: #0969da; }
.bar2 { fill: #bf8700; }
.bar3 { fill: #1a7f37; }
.arrow { fill: none; stroke: #0969da; stroke-width: 1.5; }
.head { fill: #0969da; }
.line { stroke: #d0d7de; }
.page { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .box { fill: #21262d; stroke: #8b949e; }
  .pure, .good { fill: #12361f; stroke: #3fb950; }
  .bad { fill: #3c1618; stroke: #f85149; }
  .external { fill: #0d1117; stroke: #8b949e; }
  .frame { stroke: #6e7681; }
  .outline { stroke: #8b949e; }
  .bar1 { fill: #58a6ff; }
  .bar2 { fill: #d29922; }
  .bar3 { fill: #3fb950; }
  .arrow { stroke: #58a6ff; }
  .head { fill: #58a6ff; }
  .line { stroke: #30363d; }
  .page { fill: #0d1117; }
}
"""


def text_width(text: str, size: int) -> float:
    """Width in pixels that a text takes at most."""
    return len(text) * size * WIDTH_PER_SIZE


def draw(diagram: Diagram) -> str:
    """The diagram as SVG."""
    width, height = diagram.width, diagram.height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{escape(diagram.title)}</title>",
        f"<desc>{escape(diagram.description)}</desc>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        f'<rect class="page" width="{width}" height="{height}"/>',
        *map(_area, diagram.areas),
        *(part for arrow in diagram.arrows for part in _arrow(arrow)),
        *(part for box in diagram.boxes for part in _box(box)),
        *map(_text, diagram.labels),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def segments(arrow: Arrow) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The straight pieces of an arrow."""
    return pairwise(arrow.points)


def _area(area: Area) -> str:
    if not area.height:
        return f'<line class="{area.kind}" x1="{area.x}" x2="{area.x + area.width}" y1="{area.y}" y2="{area.y}"/>'
    return f'<rect class="{area.kind}" x="{area.x}" y="{area.y}" width="{area.width}" height="{area.height}" rx="3"/>'


def _box(box: Box) -> Iterator[str]:
    kind = box.kind or ("external" if box.is_external else "pure" if box.is_pure else "box")
    yield f'<rect class="{kind}" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6"/>'
    middle = box.x + box.width // 2
    first = box.y + (box.height - box.title_size - LINE_HEIGHT * len(box.lines)) // 2 + box.title_size - 2
    yield _text(Label(middle, first, box.title, box.title_size, "middle", is_bold=True))
    for number, line in enumerate(box.lines, 1):
        yield _text(Label(middle, first + LINE_HEIGHT * number + 1, line, TEXT_SIZE, "middle"))


def _arrow(arrow: Arrow) -> Iterator[str]:
    path = " ".join(f"{x},{y}" for x, y in arrow.points)
    yield f'<polyline class="arrow" points="{path}" marker-end="url(#head)"/>'
    if arrow.label:
        yield _text(Label(*arrow.at, arrow.label, TEXT_SIZE, arrow.anchor))


def _text(label: Label) -> str:
    weight = ' font-weight="bold"' if label.is_bold else ""
    at = f'x="{label.x}" y="{label.y}" font-size="{label.size}" text-anchor="{label.anchor}"{weight}'
    return f"<text {at}>{escape(label.text)}</text>"
