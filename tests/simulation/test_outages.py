"""Recovery after outages: nodes NotReady at the start, deleted, or readable only later; a store restored from an older snapshot;
a create that is carried out after its repeat (FD:REL-A, B, C, FD:RC-B10, D6).
"""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support import virtual_time
from support.faults.script import Call, Rule
from support.faults.types import Answer, CommitLate, Delay

from simulation.environment import Environment, log_errors_as_violations
from simulation.manifests import NAME, find, group
from simulation.scenarios import edit, live_cluster, workers
from simulation.simulated_kube import NODES

pytestmark = pytest.mark.looptime

REPLACED_WITHIN_S = 10.0
"""SC:S12."""
FOLLOWED_AGAIN_S = 90.0
"""The server ends a watch from a resourceVersion in the future within a minute; then the informer lists again."""
Steps = Callable[[Environment], Coroutine[Any, Any, None]]


def run(steps: Steps) -> None:
    """Run the steps in a new event loop with virtual time; no violation is allowed."""

    async def run_steps() -> list[str]:
        env = Environment(7)
        with log_errors_as_violations(env.checks):
            env.open()
            await steps(env)
            await env.close()
        return env.checks.violations

    assert virtual_time.run(run_steps()) == []


def running_workers(env: Environment) -> int:
    """How many workers of the cluster are not on the lost node."""
    cluster = env.kube.cluster(NAME)
    assert cluster is not None
    pods = [env.kube.store.find("pods", "default", name) for name in workers(env, "a")]
    return sum(pod is not None and pod.obj()["spec"].get("nodeName") != NODES[1] for pod in pods)


def live_workers(env: Environment) -> list[str]:
    """The names of the group's live workers in the store."""
    pods = (entry.obj() for _, entry in env.kube.store.entries("pods", "default") if not entry.is_terminating)
    return [pod["metadata"]["name"] for pod in pods if pod["metadata"]["labels"].get("ray.io/group") == "a"]


def is_node_call(call: Call) -> bool:
    """Whether it is a call for nodes."""
    return call.plural == "nodes"


def is_pod_create(call: Call) -> bool:
    """Whether it creates a pod."""
    return call.method == "POST" and call.plural == "pods"


async def seconds_until_replaced(env: Environment) -> float:
    """Seconds from now until four workers are on Ready nodes."""
    begun_s = env.loop.time()
    while running_workers(env) < 4 and env.loop.time() < begun_s + 3600:
        await env.pass_time(0.5)
    return env.loop.time() - begun_s


@pytest.mark.rule("FD:REL-A", "SC:S12")
@pytest.mark.parametrize("is_back", [False, True], ids=["the node stays away", "the node comes back"])
def test_an_operator_that_starts_while_a_node_is_not_ready_replaces_its_workers_in_time(*, is_back: bool) -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 4))
        env.script.of_calls.append(Rule(Delay(3.0), is_node_call))
        env.kill()
        env.kube.lose_node(NODES[1])
        assert await seconds_until_replaced(env) <= REPLACED_WITHIN_S
        if is_back:
            env.kube.recover_node(NODES[1])
        await env.pass_time(60.0)
        assert running_workers(env) == 4

    run(steps)


@pytest.mark.rule("FD:REL-B", "SC:S12")
def test_a_permission_to_read_nodes_that_is_granted_late_is_used() -> None:
    async def steps(env: Environment) -> None:
        until_s = env.loop.time() + 20.0
        env.script.of_calls.append(Rule(Answer(403), is_node_call, times=None, until_s=until_s))
        await live_cluster(env, group("a", 4))
        await env.pass_time(40.0)
        env.kube.lose_node(NODES[1])
        assert await seconds_until_replaced(env) <= REPLACED_WITHIN_S
        await env.pass_time(1.0)

    run(steps)


@pytest.mark.rule("FD:REL-C", "RM:F10", "RM:I1")
@pytest.mark.parametrize(
    "edit_at_s",
    [
        pytest.param(1.0, id="a user scales before the restore can be detected"),
        pytest.param(300.0, id="a user scales after five minutes"),
    ],
)
def test_a_store_restored_from_an_older_snapshot_causes_no_surplus_pod(edit_at_s: float) -> None:
    async def steps(env: Environment) -> None:
        store = env.kube.store
        await live_cluster(env, group("a", 3))
        snapshot = store.snapshot()
        for _ in range(5):  # the older the snapshot, the longer its versions stay below what was seen
            edit(env, lambda spec: find(spec, "a").update(replicas=6))
            await env.settle()
            edit(env, lambda spec: find(spec, "a").update(replicas=3))
            await env.settle()
        store.restore(snapshot)
        env.checks.reset_statuses()
        await env.pass_time(edit_at_s)
        edit(env, lambda spec: find(spec, "a").update(replicas=5))
        await env.pass_time(FOLLOWED_AGAIN_S)
        most = 0
        for _ in range(1200):
            most = max(most, len(live_workers(env)))
            await env.pass_time(0.5)
        assert (most, len(live_workers(env))) == (5, 5)

    run(steps)


@pytest.mark.rule("FD:RC-B10", "SC:S12")
@pytest.mark.parametrize(
    "is_deleted_first",
    [False, True],
    ids=["pods terminate, then the Node is deleted", "the Node is deleted, then pods terminate"],
)
def test_terminating_pods_of_a_deleted_node_do_not_delay_their_replacements(*, is_deleted_first: bool) -> None:
    """A node is scaled down: its Node object is deleted at once, and a finalizer keeps its pods for an hour."""

    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 4))
        names = env.kube.stop_kubelet(NODES[1])
        for name in names:
            env.kube.edit("pods", name, None, lambda pod: pod["metadata"].update(finalizers=["example.com/hold"]))
        if is_deleted_first:
            env.kube.store.delete("nodes", "", NODES[1])
        for name in names:
            env.kube.store.delete("pods", "default", name)
        if not is_deleted_first:
            await env.pass_time(5.0)
            assert running_workers(env) < 4, "terminating pods count while the Node exists and is Ready"
            env.kube.store.delete("nodes", "", NODES[1])
        assert await seconds_until_replaced(env) <= REPLACED_WITHIN_S
        for name in names:
            env.kube.edit("pods", name, None, lambda pod: pod["metadata"].update(finalizers=[]))
        await env.pass_time(60.0)
        assert running_workers(env) == 4

    run(steps)


@pytest.mark.rule("D6", "RC:SH-4")
def test_a_worker_whose_abandoned_create_arrives_after_its_repeat_was_deleted_has_an_index_of_its_own() -> None:
    async def steps(env: Environment) -> None:
        await live_cluster(env, group("a", 1))
        env.script.of_calls.append(Rule(CommitLate(20.0), is_pod_create))
        edit(env, lambda spec: spec["workerGroupSpecs"][0].update(replicas=2))
        await env.pass_time(12.0)  # abandoned after 10 s, and sent again
        first, late = workers(env, "a")
        edit(env, lambda spec: spec["workerGroupSpecs"][0].update(replicas=1))
        await env.pass_time(0.5)
        assert workers(env, "a") == [first]
        env.kube.force_delete_pod(late)
        edit(env, lambda spec: spec["workerGroupSpecs"][0].update(replicas=2))
        await env.pass_time(1.0)
        env.script.of_calls.append(Rule(Answer(503), is_pod_create, times=None, until_s=env.loop.time() + 60.0))
        edit(env, lambda spec: spec["workerGroupSpecs"][0].update(replicas=3))
        await env.pass_time(30.0)
        assert late in workers(env, "a"), "the abandoned request was carried out"
        await env.settle()

    run(steps)
