"""What is wrong with an object, or asked for and not built?

The answers of validation, the same for every kind: `Violation` is one fault, `Unsupported` one field without effect. Both
name the field as kubectl would spell it and say in one sentence what follows or what to write instead. Made by the
rooms' validation, told by their plans, conditions and events.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from raytide.api import names

MOST_FAULTS: Final = 20
"""So many faults of one object are told; whoever corrects them sees the next."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One fault: the rule's id, the field's path, what is wrong and how to put it right."""

    rule: str
    field: str
    message: str
    event_reason: str = names.INVALID_SPEC

    def __str__(self) -> str:
        return f"{self.field} {self.message}"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One field that has no effect yet."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def first_faults(faults: Iterable[Violation]) -> tuple[Violation, ...]:
    """The first of them, and whether there are more: an object of a million faults makes no million of sentences."""
    found = tuple(islice(faults, MOST_FAULTS + 1))
    if len(found) <= MOST_FAULTS:
        return found
    more = Violation(found[-1].rule, "spec", f"has more faults than these {MOST_FAULTS}; correct these first")
    return (*found[:MOST_FAULTS], more)
