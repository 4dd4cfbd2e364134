"""Events and metrics of the life of a RayCluster, as `kubectl describe` and Prometheus show them.

The controllers run in virtual time; the events are those in the store.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raytide.api import constants
from raytide.metrics import REGISTRY
from raytide_sandbox.apiserver.request_response import Request
from raytide_sandbox.faults.types import Answer
from support import virtual_time

from simulation.manifests import NAME, find, group
from simulation.multi_host_scenarios import slices
from simulation.scenarios import edit, live_cluster, workers
from simulation.stage import Stage, heard_by
from simulation.world import NAMESPACE

pytestmark = pytest.mark.looptime

REFUSED_FOR_S = 90.0
REFUSALS_APART_S = 60.0
PROVISIONED = "kuberay_cluster_provisioned_duration_seconds"
Story = Callable[[Stage], Awaitable[None]]


def play(story: Story) -> None:
    """In a loop of its own with virtual time; nothing may be violated."""

    async def live() -> list[str]:
        stage = Stage(9)
        with heard_by(stage.judge):
            stage.open()
            await story(stage)
            await stage.close()
        return stage.judge.violations

    assert virtual_time.run(live()) == []


def events(stage: Stage, reason: str) -> list[dict[str, Any]]:
    """The events with that reason about the cluster."""
    found = [entry.obj() for _, entry in stage.world.store.entries("events")]
    return [event for event in found if event["reason"] == reason]


def count_of(event: dict[str, Any]) -> int:
    """How often it happened."""
    return int(event["count"])


def no_deletes(request: Request) -> Answer | None:
    """Admission that rejects the delete of each pod."""
    is_delete = request.method == "DELETE" and "/pods/" in request.path
    return Answer(403, message='admission webhook "hold" denied the request') if is_delete else None


@pytest.mark.rule("RC:SH-1")
def test_the_replacement_of_a_failed_worker_is_an_event_with_the_cause() -> None:
    async def story(stage: Stage) -> None:
        await live_cluster(stage, group("a", 2))
        failed = workers(stage, "a")[0]
        stage.world.kill_pod(failed, "Failed")
        await stage.settle()
        (event,) = events(stage, constants.DELETED_WORKER_POD)
        assert event["type"] == "Normal"
        assert event["message"].startswith(f"Deleted pod {failed}: its phase is Failed")
        assert "exit code 137" in event["message"]

    play(story)


@pytest.mark.rule("RC:MH-8")
def test_each_host_of_a_replica_that_is_replaced_is_named_in_an_event() -> None:
    async def story(stage: Stage) -> None:
        await live_cluster(stage, slices("a", 2, hosts=3))
        lost = workers(stage, "a")[:3]
        stage.world.evict(lost[0])
        await stage.pass_time(2.0)
        await stage.settle()
        notes = " ".join(event["message"] for event in events(stage, constants.DELETED_WORKER_POD))
        assert [name for name in lost if name in notes] == lost
        assert not [name for name in workers(stage, "a") if name in notes]

    play(story)


@pytest.mark.rule("RC:GRP-3")
def test_a_suspended_group_has_events_for_its_pods_once_and_none_later() -> None:
    async def story(stage: Stage) -> None:
        await live_cluster(stage, group("a", 2), group("b", 1))
        edit(stage, lambda spec: find(spec, "a").update(suspend=True))
        await stage.pass_time(30.0)
        assert (workers(stage, "a"), len(workers(stage, "b"))) == ([], 1)
        told = Counter(map(count_of, events(stage, constants.DELETED_WORKER_POD)))
        assert told
        for _ in range(5):
            stage.operator.enqueue(NAMESPACE, NAME)
            await stage.pass_time(60.0)
        assert Counter(map(count_of, events(stage, constants.DELETED_WORKER_POD))) == told

    play(story)


@pytest.mark.rule("RC:GRP-3", "RC:MH-8", "RM:I13")
def test_a_rejected_delete_is_a_warning_once_a_minute_with_the_cause() -> None:
    async def story(stage: Stage) -> None:
        await live_cluster(stage, group("a", 2))
        stage.wire.admission = no_deletes
        edit(stage, lambda spec: find(spec, "a").update(suspend=True))
        await stage.pass_time(REFUSED_FOR_S)
        found = events(stage, constants.FAILED_TO_DELETE_WORKER_POD)
        assert {event["type"] for event in found} == {"Warning"}
        assert all('admission webhook "hold" denied the request' in event["message"] for event in found)
        assert 1 <= sum(map(count_of, found)) <= 1 + REFUSED_FOR_S // REFUSALS_APART_S
        assert events(stage, constants.DELETED_WORKER_POD) == []
        stage.wire.admission = lambda _request: None
        await stage.pass_time(60.0)
        assert workers(stage, "a") == []

    play(story)


@pytest.mark.rule("RC:ST-4", "RC:TR-5")
def test_the_time_until_all_pods_were_ready_is_a_metric_until_the_cluster_is_deleted() -> None:
    def values() -> list[float]:
        samples = (sample for metric in REGISTRY.collect() for sample in metric.samples)
        return [sample.value for sample in samples if sample.name == PROVISIONED and sample.labels["name"] == NAME]

    async def story(stage: Stage) -> None:
        await live_cluster(stage, group("a", 2))
        (took_s,) = values()
        assert 0.0 < took_s <= 10.0
        edit(stage, lambda spec: find(spec, "a").update(replicas=3))
        await stage.settle()
        assert values() == [took_s]
        stage.world.delete_cluster(NAME)
        await stage.pass_time(30.0)
        assert values() == []

    play(story)


@pytest.mark.rule("RC:UP-3")
def test_a_changed_template_applies_to_new_pods_and_changes_no_service() -> None:
    async def story(stage: Stage) -> None:
        await live_cluster(stage, group("a", 2))
        before = {name: _image(stage, name) for name in workers(stage, "a")}
        services = stage.world.store.list("services", NAMESPACE)
        edit(
            stage, lambda spec: find(spec, "a")["template"]["spec"]["containers"][0].update(image="rayproject/ray:new")
        )
        edit(stage, lambda spec: find(spec, "a").update(replicas=3))
        await stage.settle()
        after = {name: _image(stage, name) for name in workers(stage, "a")}
        assert before.items() <= after.items()
        assert [image for name, image in after.items() if name not in before] == ["rayproject/ray:new"]
        assert stage.world.store.list("services", NAMESPACE) == services

    play(story)


def _image(stage: Stage, name: str) -> str:
    entry = stage.world.store.find("pods", NAMESPACE, name)
    assert entry is not None
    return str(entry.obj()["spec"]["containers"][0]["image"])
