"""Events and metrics of a RayCluster, as `kubectl describe` and Prometheus show them.

The controllers run in virtual time; the events are those in the store.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raytide.api import constants
from raytide.metrics import REGISTRY
from raytide_sandbox.apiserver.request_response import Request
from support import virtual_time
from support.faults.types import Answer

from simulation.environment import Environment, log_errors_as_violations
from simulation.manifests import NAME, find, group
from simulation.multi_host_scenarios import slices
from simulation.scenarios import edit, live_cluster, workers
from simulation.simulated_kube import NAMESPACE

pytestmark = pytest.mark.looptime

REFUSED_FOR_S = 90.0
REFUSALS_APART_S = 60.0
PROVISIONED = "kuberay_cluster_provisioned_duration_seconds"
Steps = Callable[[Environment], Awaitable[None]]


def run(steps: Steps) -> None:
    """Run the steps in a new event loop with virtual time; no violation is allowed."""

    async def run_steps() -> list[str]:
        env = Environment(9)
        with log_errors_as_violations(env.checks):
            env.open()
            await steps(env)
            await env.close()
        return env.checks.violations

    assert virtual_time.run(run_steps()) == []


def events(env: Environment, reason: str) -> list[dict[str, Any]]:
    """The events with that reason about the cluster."""
    found = [entry.obj() for _, entry in env.kube.store.entries("events")]
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
    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 2))
        failed = workers(env, "a")[0]
        env.kube.end_pod(failed, "Failed")
        await env.settle()
        (event,) = events(env, constants.DELETED_WORKER_POD)
        assert event["type"] == "Normal"
        assert event["message"].startswith(f"Deleted pod {failed}: its phase is Failed")
        assert "exit code 137" in event["message"]

    run(steps)


@pytest.mark.rule("RC:MH-8")
def test_each_host_of_a_replica_that_is_replaced_is_named_in_an_event() -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, slices("a", 2, hosts=3))
        lost = workers(env, "a")[:3]
        env.kube.evict_pod(lost[0])
        await env.pass_time(2.0)
        await env.settle()
        notes = " ".join(event["message"] for event in events(env, constants.DELETED_WORKER_POD))
        assert [name for name in lost if name in notes] == lost
        assert not [name for name in workers(env, "a") if name in notes]

    run(steps)


@pytest.mark.rule("RC:GRP-3")
def test_a_suspended_group_has_one_event_per_pod_and_none_later() -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 2), group("b", 1))
        edit(env, lambda spec: find(spec, "a").update(suspend=True))
        await env.pass_time(30.0)
        assert (workers(env, "a"), len(workers(env, "b"))) == ([], 1)
        counts = Counter(map(count_of, events(env, constants.DELETED_WORKER_POD)))
        assert counts
        for _ in range(5):
            env.operator.enqueue(NAMESPACE, NAME)
            await env.pass_time(60.0)
        assert Counter(map(count_of, events(env, constants.DELETED_WORKER_POD))) == counts

    run(steps)


@pytest.mark.rule("RC:GRP-3", "RC:MH-8", "RM:I13")
def test_a_rejected_delete_is_a_warning_once_a_minute_with_the_cause() -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 2))
        env.transport.admission = no_deletes
        edit(env, lambda spec: find(spec, "a").update(suspend=True))
        await env.pass_time(REFUSED_FOR_S)
        found = events(env, constants.FAILED_TO_DELETE_WORKER_POD)
        assert {event["type"] for event in found} == {"Warning"}
        assert all('admission webhook "hold" denied the request' in event["message"] for event in found)
        assert 1 <= sum(map(count_of, found)) <= 1 + REFUSED_FOR_S // REFUSALS_APART_S
        assert events(env, constants.DELETED_WORKER_POD) == []
        env.transport.admission = lambda _request: None
        await env.pass_time(60.0)
        assert workers(env, "a") == []

    run(steps)


@pytest.mark.rule("RC:ST-4", "RC:TR-5")
def test_the_time_until_all_pods_were_ready_is_a_metric_until_the_cluster_is_deleted() -> None:
    def values() -> list[float]:
        samples = (sample for metric in REGISTRY.collect() for sample in metric.samples)
        return [sample.value for sample in samples if sample.name == PROVISIONED and sample.labels["name"] == NAME]

    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 2))
        (took_s,) = values()
        assert 0.0 < took_s <= 10.0
        edit(env, lambda spec: find(spec, "a").update(replicas=3))
        await env.settle()
        assert values() == [took_s]
        env.kube.delete_cluster(NAME)
        await env.pass_time(30.0)
        assert values() == []

    run(steps)


@pytest.mark.rule("RC:UP-3")
def test_a_changed_template_applies_to_new_pods_and_changes_no_service() -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 2))
        before = {name: _image(env, name) for name in workers(env, "a")}
        services = env.kube.store.list("services", NAMESPACE)
        edit(env, lambda spec: find(spec, "a")["template"]["spec"]["containers"][0].update(image="rayproject/ray:new"))
        edit(env, lambda spec: find(spec, "a").update(replicas=3))
        await env.settle()
        after = {name: _image(env, name) for name in workers(env, "a")}
        assert before.items() <= after.items()
        assert [image for name, image in after.items() if name not in before] == ["rayproject/ray:new"]
        assert env.kube.store.list("services", NAMESPACE) == services

    run(steps)


def _image(env: Environment, name: str) -> str:
    entry = env.kube.store.find("pods", NAMESPACE, name)
    assert entry is not None
    return str(entry.obj()["spec"]["containers"][0]["image"])
