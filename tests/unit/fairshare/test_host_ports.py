"""Pods that take ports of their node: each node has each port once, as kube-scheduler counts them (FD:TJ3-1)."""

import asyncio
from typing import Any

import pytest

from raytide.api.capacity import capacity_node_from_object
from raytide.api.config import SharingConfig
from raytide.api.pod_requirements import HOST_PORT, pod_shape
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.snapshot import MAX_HOST_PORTS, SnapshotBuilder
from unit.fairshare.harness import EPOCH, Json, job_manifest
from unit.fairshare.test_with_trainingjob_controller import BothControllers

pytestmark = [pytest.mark.rule("FD:TJ3-1")]


def taken(*ports: Json, **spec: Any) -> set[str]:
    containers = [{"name": "c", "ports": [port]} for port in ports]
    return {name for name in pod_shape({"containers": containers, **spec}).requests if name.startswith(HOST_PORT)}


@pytest.mark.parametrize(
    ("ports", "spec", "wanted"),
    [
        pytest.param([{"containerPort": 80}], {}, set(), id="ports of the pod's own network"),
        pytest.param([{"containerPort": 80, "hostPort": 8080}], {}, {"host port 8080/TCP"}, id="a host port"),
        pytest.param([{"containerPort": 80}], {"hostNetwork": True}, {"host port 80/TCP"}, id="the host's network"),
        pytest.param([{"containerPort": 80, "hostPort": 0}], {}, set(), id="port 0 is none"),
        pytest.param(
            [{"containerPort": 53, "hostPort": 53, "protocol": "UDP"}], {}, {"host port 53/UDP"}, id="another protocol"
        ),
        pytest.param(
            [{"containerPort": 9, "hostPort": 9}, {"containerPort": 7, "hostPort": 7}],
            {},
            {"host port 7/TCP"},
            id="the lowest of several",
        ),
        pytest.param([{"hostPort": None, "protocol": None}], {"hostNetwork": None}, set(), id="nulls"),
    ],
)
def test_a_pod_takes_a_port_of_its_node(ports, spec, wanted):
    assert taken(*ports, **spec) == wanted


@pytest.mark.looptime
async def test_a_job_on_the_hosts_network_grows_to_one_trainer_on_each_node():
    stage = BothControllers()
    for name in ("one", "two", "three"):
        stage.add_node(name, "8")
    async with stage:
        stage.add_job("ported", 1, 20, host_network=True)
        await stage.until("it runs on each node", lambda: len(stage.placed("ported")) == 3)
        await asyncio.sleep(1200)
        assert max(stage.orders("ported")) == 3
        assert [note.reason for note in stage.record("ported").resizes] == ["Growing"]
        assert stage.record("ported").waiting.message.startswith(
            "needs 1 host port 7164/TCP free on one node; the best node has 0 free, to grow beyond 3"
        )


@pytest.mark.looptime
async def test_jobs_on_the_hosts_network_do_not_shrink_each_other_for_a_node_without_the_port():
    stage = BothControllers()
    for name in ("one", "two"):
        stage.add_node(name, "8")
    async with stage:
        stage.add_job("a", 2, 2, host_network=True)
        await stage.until("it runs", lambda: len(stage.placed("a")) == 2)
        stage.add_job("b", 1, 9)
        await stage.until("it fills the rest", lambda: len(stage.placed("b")) == 9)
        stage.add_job("c", 1, 1, host_network=True, startPolicy="Gang")
        await asyncio.sleep(300)
        assert stage.pods("c") == []
        assert stage.sizes()["b"] == 9
        stage.add_job("d", 1, 1, host_network=True, startPolicy="Gang", port=7000)
        await stage.until("a job with another port runs", lambda: len(stage.placed("d")) == 1)


def test_more_ports_than_a_plan_looks_at_keep_nobody_waiting():
    jobs = [
        TrainingJob.parse(
            job_manifest(f"j{number:03}", 1, 9, cpu="100m", host_network=True, startPolicy="Gang", port=10_000 + number)
        )
        for number in range(2 * MAX_HOST_PORTS)
    ]
    one = {"metadata": {"name": "one"}, "status": {"allocatable": {"cpu": "64", "memory": "1Ti", "pods": "1000"}}}
    snapshot = SnapshotBuilder(SharingConfig()).build(jobs, (), [capacity_node_from_object(one)], now=EPOCH)
    assert len(snapshot.nodes[0].allocatable) == 3 + MAX_HOST_PORTS
    plan = allocate(snapshot)
    reached = {each.id.name: each.after for each in plan.resizes}
    assert len(reached) == len(jobs)
    assert {reached[f"j{number:03}"] for number in range(MAX_HOST_PORTS)} == {1}, "one node has each port once"
