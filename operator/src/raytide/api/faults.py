"""What is wrong with an object, or asked for and not built?

The answers of validation, the same for every kind: `Violation` is one fault, `Unsupported` one field without effect. Both
name the field as kubectl would spell it and say in one sentence what follows or what to write instead. Made by the
rooms' validation, told by their plans, conditions and events.
"""

from dataclasses import dataclass

from raytide.api import names


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
