"""One test per bullet of `Recorder`'s contract, in virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from raytide.api.actions import Create, Delete, Outcome, Result
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import PODS
from raytide.kube.client import Client
from raytide.kube.event_recorder import Recorder, build_note
from raytide.runtime.clock import Clock
from support import virtual_time
from unit.kube.scripted import ScriptedTransport, answer, status_error

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D8")]

CLUSTER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "7"},
}


class VirtualClock(Clock):
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=virtual_time.elapsed_s())


@pytest.fixture
def wire() -> ScriptedTransport:
    return ScriptedTransport(responder=lambda call: answer({}))


@contextlib.asynccontextmanager
async def recording(wire: ScriptedTransport) -> AsyncIterator[Recorder]:
    recorder = Recorder(Client(wire, clock=Clock()), clock=VirtualClock(), controller="raytide", instance="pod-1")
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def warn(recorder: Recorder, note: str = "bad", uid: str = "u") -> None:
    regarding = {**CLUSTER, "metadata": {**CLUSTER["metadata"], "uid": uid}}
    recorder.record(regarding, event_type="Warning", reason="Invalid", note=note, action="Validate")


def created(name: str, group: str = "g", result: Result = Result.DONE, message: str = "") -> Outcome:
    action = Create(PODS, {"metadata": {"name": name}}, "CreatedWorkerPod", "FailedToCreateWorkerPod", group)
    return Outcome(action, result, reason="Forbidden", message=message)


def deleted(name: str, why: str) -> Outcome:
    return Outcome(Delete(PODS, "ns", name, "u", "DeletedWorkerPod", group="g", message=why), Result.DONE)


async def test_an_event_has_all_required_fields(wire):
    async with recording(wire) as recorder:
        await asyncio.sleep(1.5)
        warn(recorder)
        await asyncio.sleep(1)
    (call,) = wire.calls
    assert (call.method, call.path) == ("POST", "/api/v1/namespaces/ns/events")
    event = call.json
    assert event["metadata"]["namespace"] == "ns"
    assert event["metadata"]["name"].startswith("c.")
    assert event["eventTime"] == "2026-01-01T00:00:01.500000Z"
    assert (event["type"], event["reason"], event["action"], event["message"]) == (
        "Warning",
        "Invalid",
        "Validate",
        "bad",
    )
    assert (event["reportingComponent"], event["reportingInstance"]) == ("raytide", "pod-1")
    assert event["involvedObject"] == {"apiVersion": "ray.io/v1", "kind": "RayCluster", **CLUSTER["metadata"]}


@pytest.mark.rule("FD:RC-B17")
async def test_an_event_can_be_sorted_by_its_last_timestamp(wire):
    async with recording(wire) as recorder:
        await asyncio.sleep(1.5)
        warn(recorder)
        await asyncio.sleep(1)
    event = wire.calls[0].json
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:01Z"
    assert event["count"] == 1
    assert event["source"] == {"component": "raytide"}


async def test_a_pass_makes_one_event_per_reason_and_group(wire):
    outcomes = [
        *(created(f"p{i}") for i in range(5)),
        created("q", "h"),
        deleted("x", "not ready"),
        deleted("y", "named in workersToDelete"),
        created("z", "k", Result.REJECTED, 'pods "z" is forbidden: exceeded quota'),
        created("skipped", "k", Result.SKIPPED),
        created("unknown", "k", Result.UNKNOWN),
    ]
    async with recording(wire) as recorder:
        recorder.record_outcomes(CLUSTER, outcomes)
        await asyncio.sleep(1)
    sent = [(call.json["type"], call.json["reason"], call.json["message"]) for call in wire.calls]
    assert sent == [
        ("Normal", "CreatedWorkerPod", "Created 5 pods p0 … p4"),
        ("Normal", "CreatedWorkerPod", "Created pod q"),
        ("Normal", "DeletedWorkerPod", "Deleted 2 pods x … y: not ready; named in workersToDelete"),
        ("Warning", "FailedToCreateWorkerPod", 'Failed to create pod z: pods "z" is forbidden: exceeded quota'),
    ]


async def test_an_action_without_a_reason_records_no_event(wire):
    quiet = Outcome(Create(PODS, {"metadata": {"name": "a"}}, ""), Result.DONE)
    async with recording(wire) as recorder:
        recorder.record_outcomes(CLUSTER, [quiet])
        await asyncio.sleep(1)
    assert wire.calls == []


async def test_what_repeats_becomes_a_series_patched_once_a_minute(wire):
    async with recording(wire) as recorder:
        for _ in range(131):
            warn(recorder)
            await asyncio.sleep(1)
    assert [call.method for call in wire.calls] == ["POST", "PATCH", "PATCH"]
    first, second, third = wire.calls
    assert second.path.endswith("/" + first.json["metadata"]["name"])
    assert second.json == {
        "series": {"count": 61, "lastObservedTime": "2026-01-01T00:01:00.000000Z"},
        "count": 61,
        "lastTimestamp": "2026-01-01T00:01:00Z",
    }
    assert third.json["series"]["count"] == third.json["count"] == 121


async def test_another_object_or_note_is_another_event(wire):
    async with recording(wire) as recorder:
        warn(recorder)
        warn(recorder, note="worse")
        warn(recorder, uid="v")
        await asyncio.sleep(1)
    assert [call.method for call in wire.calls] == ["POST"] * 3
    assert len({call.json["metadata"]["name"] for call in wire.calls}) == 3


async def test_rejections_are_the_same_whatever_name_they_mention(wire):
    async with recording(wire) as recorder:
        for name in ("a", "b"):
            recorder.record_outcomes(CLUSTER, [created(name, "g", Result.REJECTED, f'pods "{name}": quota')])
            await asyncio.sleep(61)
    assert [call.method for call in wire.calls] == ["POST", "PATCH"]


async def test_after_six_quiet_minutes_it_is_a_new_event(wire):
    async with recording(wire) as recorder:
        warn(recorder)
        await asyncio.sleep(350)
        warn(recorder)
        await asyncio.sleep(350)
        warn(recorder)
        await asyncio.sleep(361)
        warn(recorder)
        await asyncio.sleep(1)
    assert [call.method for call in wire.calls] == ["POST", "PATCH", "PATCH", "POST"]


async def test_a_series_whose_event_expired_is_created_again(wire):
    wire.answers += [answer({}), status_error(404, "NotFound"), answer({})]
    async with recording(wire) as recorder:
        warn(recorder)
        await asyncio.sleep(100)
        warn(recorder)
        await asyncio.sleep(1)
    assert [call.method for call in wire.calls] == ["POST", "PATCH", "POST"]
    created_again = wire.calls[2].json
    assert created_again["eventTime"] == "2026-01-01T00:01:40.000000Z"
    assert created_again["firstTimestamp"] == created_again["lastTimestamp"] == "2026-01-01T00:01:40Z"
    assert (created_again["count"], "series" in created_again) == (1, False)


async def test_recording_never_blocks_and_the_queue_holds_a_thousand(wire):
    wire.takes_s = 1000
    async with recording(wire) as recorder:
        for number in range(1500):
            warn(recorder, note=f"note {number}", uid=f"u{number // 100}")
        assert virtual_time.elapsed_s() == 0
        assert recorder.dropped == 500
        await asyncio.sleep(1)
        assert wire.most_in_flight == 1


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        pytest.param(ApiUnavailableError("away"), False, id="away"),
        pytest.param(status_error(403, "Forbidden", "no"), True, id="forbidden"),
        pytest.param(
            status_error(403, "Forbidden", "gone", details={"causes": [{"reason": "NamespaceTerminating"}]}),
            False,
            id="namespace terminating",
        ),
    ],
)
async def test_an_event_that_cannot_be_posted_is_dropped(wire, error, is_logged, caplog):
    wire.answers.append(error)
    async with recording(wire) as recorder:
        warn(recorder)
        warn(recorder, note="next")
        await asyncio.sleep(1)
        assert recorder.dropped == 1
        warn(recorder)
        await asyncio.sleep(1)
    assert [call.method for call in wire.calls] == ["POST"] * 3
    assert bool(caplog.records) is is_logged


async def test_a_note_is_cut_to_what_the_api_takes(wire):
    async with recording(wire) as recorder:
        warn(recorder, note="ä" * 2000)
        await asyncio.sleep(1)
    note = wire.calls[0].json["message"]
    assert len(note.encode()) <= 1024
    assert note.endswith("ä…")


@pytest.mark.rule("FD:SEC3-7")
@pytest.mark.parametrize("repeated", [1, 1024])
async def test_a_note_is_one_line_of_bounded_length_whatever_a_tenant_wrote(wire, repeated):
    async with recording(wire) as recorder:
        warn(recorder, note="job \x1b[31m\u202e\nforged\u2028" * repeated)
        await asyncio.sleep(1)
    note = wire.calls[0].json["message"]
    assert note.startswith(r"job \x1b[31m\u202e\nforged\u2028")
    assert note.isprintable()
    assert len(note.encode()) <= 1024


def test_a_rejection_without_a_message_gives_its_reason():
    assert build_note([created("a", result=Result.REJECTED)]) == "Failed to create pod a: Forbidden"


@pytest.mark.rule("FD:SEC-F12")
async def test_many_events_about_one_object_do_not_drop_events_about_others(wire):
    async with recording(wire) as recorder:
        for number in range(10_000):
            warn(recorder, f"junk {number}", uid="hostile")
        warn(recorder, "one word", uid="honest")
        await asyncio.sleep(1)
        assert recorder.dropped == 10_000 - 100
        warn(recorder, "again", uid="hostile")
        await asyncio.sleep(1)
    sent = [call.json["message"] for call in wire.calls]
    assert "one word" in sent
    assert sent[-1] == "again"
    assert len(sent) == 102
