"""Applies the mutation of the command line option `--mutation`, and compares all reasons with the pages of conditions and events."""

from collections.abc import Iterator
from typing import Any

import pytest

import reasons
from raytide.api import conditions, constants
from raytide.kube.event_recorder import Recorder

from simulation.mutations import MUTATIONS

CONDITIONS = {
    (each.described.name, reason.described.name)
    for found in reasons.conditions().values()
    for each in found
    for reason in each.reasons
}
EVENTS = {(event.type, event.described.name) for found in reasons.events().values() for event in found}


@pytest.fixture(autouse=True)
def _mutation(request: pytest.FixtureRequest) -> Iterator[None]:
    name = request.config.getoption("--mutation")
    with pytest.MonkeyPatch.context() as patch:
        if name:
            MUTATIONS[name](patch)
        yield


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
