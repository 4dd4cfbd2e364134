"""Gangs on nodes that are added on demand: node autoscalers see pods only, and a gang without capacity has none (FD:TJ3-5)."""

import asyncio
from itertools import pairwise

import pytest

from raytide.api.conditions import find_condition
from raytide.api.config import SharingConfig
from raytide.api.node_autoscaler import Presence
from raytide.api.sharing_record import AWAITING_NODES
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import AllocationOptions
from raytide_sandbox.apiserver.store import Change
from support.definitions import PATH as CRDS
from support.elastic_builders import World, job, node, quota
from unit.fairshare.test_with_trainingjob_controller import BothControllers

pytestmark = [pytest.mark.looptime, pytest.mark.rule("FD:TJ3-5")]

STATUS = {"metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}}
NODEPOOLS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodepools.karpenter.sh"},
    "spec": {
        "group": "karpenter.sh",
        "names": {"kind": "NodePool", "plural": "nodepools", "singular": "nodepool", "listKind": "NodePoolList"},
        "scope": "Cluster",
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ],
    },
}
ALWAYS = SharingConfig(node_autoscaler=Presence.PRESENT)
READY_AFTER_S = 240.0
"""As long as a cloud takes for a node with GPUs."""


class Cloud(BothControllers):
    """Adds a node of `gpus` GPUs for each pod that is left without one, READY_AFTER_S later, until there are `most`."""

    def __init__(self, *, gpus: int = 1, most: int = 99, **more) -> None:
        super().__init__(**more)
        self.gpus, self.most, self.count = gpus, most, 0
        self.store.subscribe(self._see_new_pod, "pods")

    def _see_new_pod(self, change: Change) -> None:
        if change.type == "ADDED" and self.count < self.most:
            self.count += 1
            asyncio.get_running_loop().call_later(
                READY_AFTER_S, lambda name=f"new-{self.count}": self.add_node(name, "8", gpu=self.gpus)
            )

    def admitted(self, name: str) -> tuple[str, str]:
        condition = find_condition(self.status(name).get("conditions") or (), "Admitted") or {}
        return condition.get("reason", ""), condition.get("message", "")


async def test_a_gang_starts_from_zero_nodes():
    stage = Cloud(config=ALWAYS)
    async with stage:
        stage.add_job("gang", 2, 4, gpu=1)
        await stage.until("its pods exist", lambda: len(stage.pods("gang")) == 2)
        await stage.until("it says so", lambda: stage.admitted("gang")[0] == "Admitted")
        assert (
            stage.admitted("gang")[1]
            == "there is no capacity for the minimum: its pods exist so that a node autoscaler adds nodes"
        )
        await stage.until("it runs", lambda: stage.phases()["gang"] == "Running", within_s=2 * READY_AFTER_S)
        assert [note.reason for note in stage.record("gang").resizes] == ["AwaitingNodes"]
        assert stage.record("gang").resizes[0].message == (
            "Admitted with 2 without capacity, so that a node autoscaler adds nodes for them"
        )


@pytest.mark.parametrize("sign", ["Cluster Autoscaler", "Karpenter"])
async def test_a_node_autoscaler_is_found_before_the_first_node(sign: str):
    stage = Cloud()
    if sign == "Karpenter":
        stage.handle("POST", CRDS, NODEPOOLS)
    else:
        stage.store.create("configmaps", STATUS)
    async with stage:
        stage.add_job("gang", 2, 2, gpu=1)
        await stage.until("it runs", lambda: stage.phases().get("gang") == "Running", within_s=2 * READY_AFTER_S)


async def test_a_node_autoscaler_that_comes_later_is_found_within_ten_minutes():
    stage = Cloud()
    async with stage:
        stage.add_job("gang", 2, 2, gpu=1)
        await asyncio.sleep(300)
        stage.store.create("configmaps", STATUS)
        await stage.until("its pods exist", lambda: len(stage.pods("gang")) == 2, within_s=310)
    asked = {path: times for path, times in stage.counted.items() if "karpenter" in path or "kube-system" in path}
    assert asked == {"/apis/karpenter.sh": 2, "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status": 2}


@pytest.mark.parametrize("presence", [Presence.AUTO, Presence.ABSENT])
async def test_without_a_node_autoscaler_a_gang_without_capacity_has_no_pods(presence: Presence):
    stage = Cloud(config=SharingConfig(node_autoscaler=presence))
    if presence is Presence.ABSENT:
        stage.store.create("configmaps", STATUS)
    async with stage:
        stage.add_job("gang", 2, 2, gpu=1)
        await stage.until("it waits", lambda: stage.waiting().get("gang") == "Unsatisfiable")
        await asyncio.sleep(1200)
        assert stage.count == 0


async def test_a_gang_that_gets_no_nodes_tries_again_after_longer_and_longer_pauses():
    stage = Cloud(config=ALWAYS, most=0)
    made: list[float] = []
    stage.store.subscribe(
        lambda change: made.append(stage.clock.monotonic()) if change.type == "ADDED" else None, "pods"
    )
    async with stage:
        stage.add_job("gang", 1, 1, gpu=1, pendingTimeoutSeconds=300)
        await asyncio.sleep(3000)
        waiting = find_condition(stage.status("gang")["conditions"], "Waiting")
        assert waiting["reason"] == "Unsatisfiable"
        assert "; its pods exist again at 2026-01-01T00:56:" in waiting["message"]
        await asyncio.sleep(600)
        pauses = [round(later - earlier) for earlier, later in pairwise(made)]
        assert [pause // 60 * 60 for pause in pauses] == [300 + 60, 300 + 120, 300 + 240, 300 + 480, 300 + 960]


async def test_between_two_attempts_a_gang_starts_as_soon_as_there_is_capacity():
    stage = Cloud(config=ALWAYS, most=0)
    async with stage:
        stage.add_job("gang", 2, 2, gpu=1, pendingTimeoutSeconds=60)
        for _ in range(5):  # the next pause is of 16 minutes
            await stage.until("its pods exist", lambda: len(stage.pods("gang")) == 2, within_s=1000)
            await stage.until("its pods are gone", lambda: stage.pods("gang") == [], within_s=100)
        stage.add_node("by-hand", "8", gpu=2)
        await stage.until("it runs", lambda: stage.phases()["gang"] == "Running", within_s=10)


def test_gangs_are_admitted_without_capacity_as_far_as_their_quota_goes():
    options = AllocationOptions(has_node_autoscaler=True)
    gangs = [job(name, 2, 2, gpu=1, created_at=f"2026-01-01T00:00:0{number}Z") for number, name in enumerate("cba")]
    plan = allocate(World([], gangs, quotas=[quota(**{"nvidia.com/gpu": 5})], options=options).pool())
    assert {each.id.name: (each.after, each.reason) for each in plan.resizes} == {
        "c": (2, AWAITING_NODES),
        "b": (2, AWAITING_NODES),
    }


@pytest.mark.parametrize("reason", ["cooldown", "backoff"])
def test_a_gang_gets_no_pods_without_capacity(reason: str):
    """Where a donor will give after its cooldown, and in a pause."""
    holder = job("holder", 1, 4, 4, gpu=1, may_shrink=reason != "cooldown", priority=reason != "cooldown")
    gang = job("gang", 2, 2, gpu=1, may_await_nodes=reason != "backoff")
    world = World([node(cpu=9, gpu=4)], [holder, gang], options=AllocationOptions(has_node_autoscaler=True))
    assert allocate(world.pool()).resizes == ()


async def test_a_job_that_was_optimistic_comes_back_as_a_gang():
    stage = Cloud(config=ALWAYS, most=0)
    async with stage:
        stage.add_job("job", 2, 2, pendingTimeoutSeconds=60)
        await stage.until("its pods exist", lambda: len(stage.pods("job")) == 2)
        await stage.until("its pods are gone", lambda: stage.pods("job") == [], within_s=100)
        await stage.until("its pods exist again", lambda: len(stage.pods("job")) == 2, within_s=100)
        stage.add_node("new", "8")
        await stage.until("it runs", lambda: stage.phases()["job"] == "Running", within_s=10)
