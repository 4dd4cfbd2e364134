"""The GCS client against real raylets, tasks and placement groups; part of `make test-ray` and `make test-ray`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio

from raytide.api.errors import ApiUnavailableError
from raytide.autoscaler.gcs.channel import connect_gcs
from raytide.autoscaler.gcs.client import Gcs, is_autoscaler_v2, session_name
from raytide.autoscaler.gcs.credentials import gcs_access
from raytide.autoscaler.model import (
    HEAD_TYPE,
    RESOURCE_UNIT_SCALING,
    Amounts,
    DrainReason,
    GcsState,
    LabelConstraint,
    NodeStatus,
    PendingInstance,
    PendingRequest,
    RayNode,
    Report,
    Topology,
    amounts_of,
)
from support.deadlines import PATIENCE
from support.ray_processes import Ray, RayNodes, until_it_answers

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="module")]

RAY = Ray.under_test()
TELLS_SELECTORS = RAY.version >= (2, 52)
"""Ray 2.47 accepts a label selector and does not report it to the autoscaler."""
HAS_TOPOLOGY = RAY.version >= (2, 60)
"""Older versions have no `topology_strategy`."""

PROGRAM = """
import sys, time, ray
from ray.autoscaler.sdk import request_resources
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In
ray.init(address=sys.argv[1], log_to_driver=False)

@ray.remote(num_cpus=0)
class Busy:
    def ready(self):
        return 1

@ray.remote(num_cpus=1)
def work():
    pass

busy = Busy.options(resources={"busy": 1}).remote()
ray.get(busy.ready.remote())
waiting = [work.options(resources={"gold": 0.5}).remote() for _ in range(3)]
actors = [Busy.options(num_cpus=2, resources={"silver": 1}).remote() for _ in range(2)]
zoned = [work.options(num_cpus=3, **eval(sys.argv[2])).remote()]
groups = [placement_group([{"CPU": 5}] * 3, strategy=strategy) for strategy in ("STRICT_SPREAD", "STRICT_PACK", "PACK")]
groups += [placement_group([{"CPU": 6}] * 2, **more) for more in eval(sys.argv[3])]
inside = [work.options(scheduling_strategy=In(groups[2], bundle)).remote() for bundle in (0, -1)]
inside += [Busy.options(num_cpus=1, scheduling_strategy=In(groups[0], 1)).remote()]
request_resources(num_cpus=7, bundles=[{"GPU": 1}])
print("ready", flush=True)
sys.stdin.read()
"""


BUNDLE = (("CPU", 5 * RESOURCE_UNIT_SCALING),)


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    nodes = RayNodes(RAY)
    try:
        nodes.start_head("--num-cpus=0")
        yield nodes
    finally:
        nodes.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(nodes: RayNodes) -> AsyncIterator[Gcs]:
    client = connect_gcs(nodes.address, gcs_access({}))
    try:
        await until_it_answers(client, within_s=120)
        await until(client, "the head is there", lambda state: len(state.nodes) == 1)
        nodes.start_worker("pod-busy", "cpu", "--num-cpus=1", '--resources={"busy": 1}')
        await until(
            client, "the first worker is there", lambda state: len(state.nodes) == 2
        )  # two at once share sockets
        nodes.start_worker("pod-idle", "gpu", "--num-cpus=1", "--num-gpus=2")
        await until(client, "the workers are there", lambda state: len(state.nodes) == 3)
        selector = 'dict(label_selector={"zone": "!a"})'
        strategy = {"topology_strategy": {"rack": "STRICT_PACK", "ray.io/node-id": "SPREAD"}}
        await asyncio.to_thread(nodes.drive, PROGRAM, selector, repr([strategy] * HAS_TOPOLOGY))
        yield client
    except TimeoutError:
        raise AssertionError(nodes.said()) from None
    finally:
        await client.close()


async def until(client: Gcs, what: str, is_so: Callable[[GcsState], bool]) -> GcsState:
    try:
        async with asyncio.timeout(120 * PATIENCE):
            while True:
                try:
                    state = await client.state()
                except ApiUnavailableError:
                    state = GcsState()
                if is_so(state):
                    return state
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise TimeoutError(f"{what}: {state}") from None


def node(state: GcsState, instance_id: str) -> RayNode:
    (found,) = [node for node in state.nodes if node.instance_id == instance_id]
    return found


async def test_nodes_carry_the_names_their_pods_gave_them(client: Gcs) -> None:
    state = await until(client, "an actor runs", lambda state: node(state, "pod-busy").status is NodeStatus.RUNNING)
    assert {found.instance_id: found.node_type for found in state.nodes} == {
        "head": HEAD_TYPE,
        "pod-busy": "cpu",
        "pod-idle": "gpu",
    }
    assert dict(node(state, "head").total)["node:__internal_head__"] == RESOURCE_UNIT_SCALING
    idle = node(state, "pod-idle")
    assert dict(idle.total)["GPU"] == dict(idle.available)["GPU"] == 2 * RESOURCE_UNIT_SCALING
    assert dict(node(state, "pod-busy").total)["busy"] == RESOURCE_UNIT_SCALING
    assert "busy" not in dict(node(state, "pod-busy").available)
    assert (idle.status, idle.idle_ms > 0) == (NodeStatus.IDLE, True)
    assert not state.problems


@pytest.mark.rule("AS:G-6", "AS:G-7", "FD:AS3-1")
async def test_tasks_and_actors_that_wait_outside_of_placement_groups_are_demand(client: Gcs) -> None:
    wanted = {
        amounts_of({"CPU": 1, "gold": 0.5}): 3,
        amounts_of({"CPU": 2, "silver": 1}): 2,
        amounts_of({"CPU": 3}): 1,
    }

    def found(state: GcsState) -> dict[Amounts, int]:
        return {demand.request.amounts: demand.count for demand in state.tasks}

    state = await until(client, "all demand is seen", lambda state: found(state) == wanted)
    (zoned,) = [demand.request for demand in state.tasks if demand.request.amounts == amounts_of({"CPU": 3})]
    told = ((LabelConstraint("zone", ("a",), is_in=False),),)
    assert zoned.selectors == (told if TELLS_SELECTORS else ())


@pytest.mark.rule("AS:G-8", "FD:AS3-7")
async def test_placement_groups_that_wait_are_gangs(client: Gcs) -> None:
    state = await until(client, "all groups are seen", lambda state: len(state.gangs) == 3 + HAS_TOPOLOGY)
    topologies = {gang.topology: gang for gang in state.gangs}
    if HAS_TOPOLOGY:
        gang = topologies.pop(Topology("rack"))
        assert [(b.amounts, b.affinity, b.anti_affinity) for b in gang.bundles] == [
            (amounts_of({"CPU": 6}), None, None)
        ] * 2
    assert topologies.keys() == {None}
    by_strategy = {gang.details.split(":")[1].split("|")[0]: gang for gang in state.gangs if gang.topology is None}
    assert by_strategy.keys() == {"STRICT_SPREAD", "STRICT_PACK", "PACK"}
    for strategy, gang in by_strategy.items():
        pair = (f"_PG_{gang.details.split(':')[0]}", "")
        assert [bundle.amounts for bundle in gang.bundles] == [BUNDLE] * 3
        assert {bundle.affinity for bundle in gang.bundles} == {pair if strategy == "STRICT_PACK" else None}
        assert {bundle.anti_affinity for bundle in gang.bundles} == {pair if strategy == "STRICT_SPREAD" else None}


@pytest.mark.rule("AS:G-9")
async def test_request_resources_is_the_constraint(client: Gcs) -> None:
    state = await until(client, "the constraint is seen", lambda state: state.constraint is not None)
    assert {demand.request.amounts: demand.count for demand in state.constraint or ()} == {
        amounts_of({"CPU": 1}): 7,
        amounts_of({"GPU": 1}): 1,
    }


async def test_the_gcs_returns_the_directories_of_the_head(client: Gcs, nodes: RayNodes) -> None:
    directories = await client.head_directories()
    assert directories.temp_dir == str(nodes.folder / "ray")
    assert directories.session_dir.startswith(directories.temp_dir)
    assert await is_autoscaler_v2(client)
    assert directories.session_dir.endswith(await session_name(client))


@pytest.mark.rule("AS:5.5")
async def test_ray_status_shows_what_was_reported(client: Gcs, nodes: RayNodes) -> None:
    report = Report(
        gcs_version=(await client.state()).version,
        version=await client.reported_version() + 1,
        pending_requests=(PendingRequest("gpu", 3, 5),),
        pending_instances=(PendingInstance("cpu", "pod-9", "192.0.2.9", "PULLING"),),
    )
    await client.report(report)
    status = await asyncio.to_thread(nodes.ray_status)
    assert "gpu, 3 launching" in status
    assert "pod-9: cpu, pulling" in status


@pytest.mark.rule("AS:G-12")
async def test_a_busy_node_rejects_to_leave_and_an_idle_one_is_gone_at_once(client: Gcs) -> None:
    state = await until(client, "one is idle", lambda state: node(state, "pod-idle").status is NodeStatus.IDLE)
    answers = {
        name: await client.drain(node(state, name).node_id, reason=DrainReason.IDLE_TERMINATION, message="idle")
        for name in ("pod-busy", "pod-idle")
    }
    assert {name: answer.is_accepted for name, answer in answers.items()} == {"pod-busy": False, "pod-idle": True}
    assert answers["pod-busy"].message
    await until(client, "the idle one is dead", lambda state: not node(state, "pod-idle").is_alive)
    assert node(await client.state(), "pod-busy").is_alive
