"""Texts of docs/conditions.md and docs/events.md: meanings from docstrings, remedies, and messages with words as arguments.

Meanings are the docstrings of the constants, what to do about them their second paragraph or api/remedies.py, and messages what the
functions of the messages modules return with upper-case words as arguments. Used by condition_reasons.py and event_reasons.py.
"""

import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Self

from raytide.api import pod_failure
from raytide.api.autoscaler_decision import Why
from raytide.api.remedies import REMEDIES, SUSPENDED, Facts, held_by
from raytide.api.violations import Unsupported, Violation
from raytide.trainingjob import messages as training_messages
from reason_sources import docstring_of

RAYCLUSTER, TRAININGJOB = KINDS = ("RayCluster", "TrainingJob")


class MissingEntryError(Exception):
    """A reason that the code can write is not on a page, or has no text."""


@dataclass(frozen=True, slots=True)
class Described:
    """A name that users see, with its meaning and what to do about it; the latter is empty if nothing has to be done."""

    name: str
    meaning: str
    cure: str = ""


def of(owner: ModuleType | type, constant: str, kind: str = RAYCLUSTER) -> Described:
    """The constant or enum member: its docstring has the meaning and, after an empty line, what to do about it."""
    value = getattr(owner, constant)
    name = str(getattr(value, "value", value))
    meaning, _, cure = docstring_of(owner, constant).partition("\n\n")
    if not meaning:
        raise MissingEntryError(f"{owner.__name__}.{constant} has no docstring, which is its row on the page")
    return Described(name, one_line(meaning), one_line(cure) or cure_of(name, kind))


def cure_of(reason: str, kind: str) -> str:
    """What api/remedies.py has for that reason, with upper-case words for names; empty for a reason without a remedy."""
    detail = "" if reason == SUSPENDED else "…"  # suspended by the user; a queue is named in docs/why.md
    facts = Facts(kind, "NAMESPACE", "NAME", "GROUP", pod="POD", detail=detail)
    return _sentence(REMEDIES[reason].cure_in(facts)) if reason in REMEDIES else ""


class Number(int):
    """A number whose text is a word."""

    word: str

    def __new__(cls, word: str, value: int = 2) -> Self:
        """The value decides comparisons."""
        number = super().__new__(cls, value)
        number.word = word
        return number

    def __format__(self, _spec: str) -> str:
        return self.word

    __str__ = __repr__ = lambda self: self.word


def messages_of(build: Callable[..., Any], **given: Any) -> tuple[Any, ...]:
    """What the function returns with upper-case words for its parameters, one value for each combination of the Boolean ones."""
    hints = typing.get_type_hints(build)
    calls: list[dict[str, Any]] = [{}]
    for name in inspect.signature(build).parameters:
        values = (given[name],) if name in given else _values(name, hints[name])
        calls = [{**call, name: value} for call in calls for value in values]
    return tuple(dict.fromkeys(build(**call) for call in calls))


def _values(name: str, hint: Any) -> tuple[Any, ...]:
    word = name.upper()
    if hint is bool:
        return True, False
    if hint is int or int in typing.get_args(hint):
        return (Number(word),)
    if hint is Why:
        return (Why("REASON", Number("COUNT"), "MESSAGE"),)
    if typing.get_origin(hint) in (Sequence, Iterable):
        return ((word.removesuffix("S"),),)
    return (word,)


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def _sentence(text: str) -> str:
    """With a capital letter and a period; a command stays as it is."""
    is_command = text.startswith(("kubectl ", "raytide "))
    return text if is_command or not text else f"{text[0].upper()}{text[1:]}."


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a condition, with the statuses it comes with and its messages."""

    status: str
    described: Described
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """One type of condition; `messages` are those of all of its reasons."""

    described: Described
    reasons: tuple[Reason, ...]
    messages: tuple[str, ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One reason of events about a kind."""

    type: str
    described: Described
    messages: tuple[str, ...]


def with_remedy(texts: Iterable[str]) -> tuple[str, ...]:
    """The messages with holder and cure, as conditions and their events append them."""
    return tuple(text + held_by("HOLDER", "CURE") for text in texts)


def violation_messages() -> tuple[str, ...]:
    """Messages about an invalid field."""
    return (str(Violation("", "FIELD", "MESSAGE")),)


def unsupported_messages() -> tuple[str, ...]:
    """Messages about a field without effect."""
    return (str(Unsupported("FIELD", "MESSAGE")),)


def cause_messages(cause: pod_failure.Cause) -> tuple[str, ...]:
    """Messages of a TrainingJob whose pods cannot be created or started for that cause."""
    if cause is pod_failure.Cause.NAME_TAKEN:
        return messages_of(training_messages.names_taken)
    if cause is pod_failure.Cause.FORBIDDEN:
        return messages_of(training_messages.create_rejected, detail="MESSAGE OF THE API SERVER")
    return messages_of(training_messages.pods_cannot_start)
