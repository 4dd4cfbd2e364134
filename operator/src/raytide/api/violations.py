"""Results of validation: violations and unsupported fields.

The same for every kind: `Violation` is one invalid field, `Unsupported` one field without effect. Both contain the
field's path as kubectl writes it and one sentence on the consequence or the correction. Created by the controllers'
validation, reported by their plans, conditions and events.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from raytide.api import constants

MAX_VIOLATIONS: Final = 20
"""The most violations reported for one object; further ones appear once these are corrected."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation: the rule's id, the field's path, what is wrong and how to correct it."""

    rule: str
    field: str
    message: str
    event_reason: str = constants.INVALID_SPEC

    def __str__(self) -> str:
        return f"{self.field} {self.message}"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One field that has no effect yet."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def first_violations(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """The first `MAX_VIOLATIONS` violations, and one more entry if there are others; consumes no more than needed."""
    found = tuple(islice(violations, MAX_VIOLATIONS + 1))
    if len(found) <= MAX_VIOLATIONS:
        return found
    more = Violation(found[-1].rule, "spec", f"has more violations than these {MAX_VIOLATIONS}; correct these first")
    return (*found[:MAX_VIOLATIONS], more)
