"""Rendering: a diagnosis as text, for conditions, events, logs and explanations.

Takes a diagnosis and the workload that it is about, and returns its text, holder and fix from catalogue.py. Bounded where
Kubernetes bounds it. Pure; called by the controllers, the autoscaler and explain.
"""

from collections import defaultdict
from typing import Final

from raytide.diagnosis.catalogue import CATALOGUE, DEFAULTS, Text, entry_of
from raytide.diagnosis.model import Diagnosis, Workload

HELD_BY: Final = "; held by: "
"""Begins the part of a condition's message that has holder and fix."""
LONGEST_NOTE: Final = 1024
"""Of an event's note, in bytes, as the API server has it."""
LONGEST_HOLDER_AND_FIX: Final = 400
"""Of holder and fix in an event whose message is too long, in characters."""
_NO_WORKLOAD: Final = Workload("", "", "")


def counted(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def text_of(found: Diagnosis) -> str:
    """What happened: the message, or the catalogue's text with the parameters; empty without either."""
    text = entry_of(found.reason).text
    return found.message or (_rendered(text, found, _NO_WORKLOAD) if text and found.parameters else "")


def holder_of(found: Diagnosis, of: Workload) -> str:
    """What holds the workload up."""
    return _rendered(entry_of(found.reason).holder, found, of)


def fix_of(found: Diagnosis, of: Workload) -> str:
    """What to do about it."""
    return _rendered(entry_of(found.reason).fix, found, of)


def _rendered(text: Text, found: Diagnosis, of: Workload) -> str:
    if not isinstance(text, str):
        return text(found, of)
    group = found.group or "the workload"
    fields = {
        **DEFAULTS,
        **found.parameters,
        "kind": of.kind,
        "namespace": of.namespace,
        "name": of.name,
        "group": group,
    }
    return text.format_map(defaultdict(str, fields))


# --- in conditions and events --------------------------------------------------------------------------------------------


def held_by(holder: str, fix: str) -> str:
    """Holder and fix as conditions append them to the text."""
    return f"{HELD_BY}{holder}; fix: {fix}"


def holder_and_fix(found: Diagnosis, of: Workload) -> str:
    """Holder and fix as conditions append them; empty for a reason that has none of its own."""
    entry = CATALOGUE.get(found.reason)
    return held_by(holder_of(found, of), fix_of(found, of)) if entry is not None and entry.holder else ""


def note_with_fix(message: str) -> str:
    """A condition's message as an event's note; one that is too long is cut before its first holder and fix, and after them."""
    text, mark, fixes = message.partition(HELD_BY)
    if not mark or len(message.encode()) <= LONGEST_NOTE:
        return message
    fix = mark + fixes.partition("; group ")[0]
    fix = fix if len(fix) <= LONGEST_HOLDER_AND_FIX else fix[: LONGEST_HOLDER_AND_FIX - 1] + "…"
    space = LONGEST_NOTE - len(fix.encode()) - len("…".encode())
    is_cut = len(text.encode()) > space
    return text.encode()[:space].decode(errors="ignore") + ("…" if is_cut else "") + fix
