"""Metrics and labels that a PromQL expression names; not a parser: promtool checks the syntax."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

STRING = r'"(?:[^"\\]|\\.)*"'
GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
SELECTOR = re.compile(
    rf"(?<![\w:$])(?P<name>[a-zA-Z_:][\w:]*)(?![\w:]*\s*\()\s*(?:{{(?P<matchers>(?:{STRING}|[^}}])*)}})?"
)
MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({STRING})")
WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan", "Inf", "NaN"})


@dataclass(frozen=True)
class Selector:
    """A metric, and the values that its matchers name by label, also those that must not match."""

    metric: str
    values: dict[str, frozenset[str]] = field(default_factory=dict)


def selectors(expression: str) -> Iterator[Selector]:
    """All selectors of an expression."""
    text = re.sub(r"\[[^\]]*\]", "", GROUPED.sub("", expression))
    for found in SELECTOR.finditer(text):
        if found["name"] not in WORDS:
            matchers = MATCHER.findall(found["matchers"] or "")
            yield Selector(found["name"], {label: _values(value) for label, _, value in matchers})


def grouping_labels(expression: str) -> set[str]:
    """The labels of all `by`, `on` and the like."""
    return {label.strip() for labels in GROUPED.findall(expression) for label in labels.split(",") if label.strip()}


def kept_labels(expression: str) -> set[str]:
    """The labels of the first `by`, which are those of the result in our rules."""
    found = re.search(r"\bby\s*\(([^)]*)\)", expression)
    return {label.strip() for label in found[1].split(",")} - {"le"} if found else set()


def _values(quoted: str) -> frozenset[str]:
    return frozenset(quoted[1:-1].split("|"))
