"""Compares all reasons with the pages of conditions and events."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raytide.api import conditions, constants
from raytide.kube.event_recorder import Recorder

DOCS = Path(__file__).parents[2] / "docs"
CONDITIONS = {
    (kind, reason)
    for kind, section in re.findall(
        r"^### (\w+) of a \w+\n(.*?)(?=^#|\Z)", (DOCS / "conditions.md").read_text(), re.MULTILINE | re.DOTALL
    )
    for reason in re.findall(r"^\| [\w, ]+ \| `(\w+)` \|", section, re.MULTILINE)
}
EVENTS = set(re.findall(r"^\| (Normal|Warning) \| `(\w+)` \|", (DOCS / "events.md").read_text(), re.MULTILINE))


@pytest.fixture(autouse=True)
def _reasons_are_on_the_pages(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each condition and each event of the run is in docs/conditions.md and docs/events.md."""
    unlisted: set[tuple[str, str]] = set()
    set_condition, enqueue = conditions.set_condition, Recorder._enqueue

    def checked_set(found: Any, kind: str, *, reason: str, **rest: Any) -> Any:
        if kind != constants.HEAD_POD_READY and (kind, reason) not in CONDITIONS:  # its reason is the pod's
            unlisted.add((kind, reason))
        return set_condition(found, kind, reason=reason, **rest)

    def checked_enqueue(recorder: Recorder, regarding: Any, topic: Any, note: str) -> None:
        if topic[:2] not in EVENTS:
            unlisted.add(topic[:2])
        enqueue(recorder, regarding, topic, note)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "set_condition", checked_set)
        patch.setattr(Recorder, "_enqueue", checked_enqueue)
        yield
    assert not unlisted or request.config.getoption("--mutation"), f"not on the pages: {sorted(unlisted)}"
