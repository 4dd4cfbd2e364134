"""The outputs of commands in the user guide, compared with those of a run.

`examples()` reads the console blocks of a document: a command after `$ `, then its output up to the next command.
`differs()` compares an output with what a run printed. What differs from run to run is left out of the comparison: the random
end of names, ages, times of day, ports, nodes, line numbers, columns' widths. A line `…` stands for any lines, `…` inside a line for
anything.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from support.documented_commands import prompted

DOCS = Path(__file__).resolve().parents[2] / "docs"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARYING = (
    (re.compile(r"(-head|-worker)-[a-z0-9]{5}(?![a-z0-9])"), r"\1-RANDOM"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+"), "TIME"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\.py:\d+"), ".py:LINE"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "SECONDS"),
    (re.compile(r"\b(\d+m)?\d+s\b|\b\d+m\b"), "AGE"),
    (re.compile(r"\bsandbox-\d+\b"), "NODE"),
    (re.compile(r"[ \t]+"), " "),
)


_NODES_OF_TYPE = re.compile(r"\d+ [a-z]+")


@dataclass(frozen=True, slots=True)
class Example:
    """One command of a document, and its output in the document."""

    command: str
    output: tuple[str, ...]


def examples(document: str) -> list[Example]:
    """All of a document in `docs/`, in order."""
    blocks = _BLOCK.findall((DOCS / document).read_text())
    return [Example(command, output) for block in blocks for command, output in prompted(block)]


def differs(example: Example, printed: str, *, is_ordered: bool = True) -> str:
    """Why this is not what the document shows; empty if it is. Without order, each line has to be among the printed ones."""
    wanted, found = _lines(example.output), _lines(printed.splitlines())
    if not is_ordered:
        missing = [line for line in wanted if line != "…" and not any(_is_line(line, each) for each in found)]
        return _difference(example, missing, found) if missing else ""
    return "" if _matches(wanted, found) else _difference(example, wanted, found)


def _lines(printed: Iterable[str]) -> list[str]:
    """What does not vary. Ray lists node types in the order of random node ids: lines such as ` 2 cpu` are sorted."""
    groups = groupby(map(_plain, printed), key=lambda line: _NODES_OF_TYPE.fullmatch(line) is not None)
    return [line for is_count, lines in groups for line in (sorted(lines) if is_count else lines)]


def _difference(example: Example, wanted: list[str], found: list[str]) -> str:
    return f"$ {example.command}\nthe document:\n{_text(wanted)}\nthe run:\n{_text(found)}"


def _matches(wanted: list[str], found: list[str]) -> bool:
    if not wanted:
        return not found
    if wanted[0] == "…":
        return any(_matches(wanted[1:], found[n:]) for n in range(len(found) + 1))
    return bool(found) and _is_line(wanted[0], found[0]) and _matches(wanted[1:], found[1:])


def _is_line(wanted: str, found: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in wanted.split("…")), found) is not None


def _plain(line: str) -> str:
    """The line without what differs from run to run."""
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line.strip()


def _text(lines: list[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
