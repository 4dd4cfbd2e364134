"""The main job with real Ray: a RayCluster follows its demand, up, down and while its autoscaler is being killed.

One cluster for the whole file: a group of one or two workers, and a reserve that is asked only when the first is full.
Demand comes from tasks, actors, placement groups and `request_resources`, in drivers on the head; every test leaves the
cluster at its minimum. Nothing is faked; every wait has a deadline.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.ray_stage import PRELUDE, RayStage, answer_in, small
from support.sandbox_process import Json

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SAMPLE = Path(__file__).parents[2] / "samples" / "raycluster-autoscaler.yaml"
IDLE_S = 4
MOST = {"cpu": 2, "reserve": 2}
LEAST = {"cpu": 1}
KILLS = 5

TASKS = """
@ray.remote(num_cpus=1)
def where():
    while sum(node["Alive"] for node in ray.nodes()) < 3:
        time.sleep(0.1)
    return pod()
print("ANSWER", *sorted(ray.get([where.remote() for _ in range(2)])))
"""
ACTORS = """
@ray.remote(num_cpus=1)
class Actor:
    def where(self):
        return pod()
actors = [Actor.remote() for _ in range(2)]
print("ANSWER", *sorted(ray.get([actor.where.remote() for actor in actors])))
"""
SPREAD = """
gang = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
ray.get(gang.ready())
@ray.remote(num_cpus=1)
def where():
    return pod()
found = ray.get([where.options(scheduling_strategy=In(gang, i)).remote() for i in range(2)])
print("ANSWER", *sorted(found))
"""
REQUEST = """
from ray.autoscaler.sdk import request_resources
request_resources(num_cpus=%d)
"""
KEEPS = """
ends, sizes = time.monotonic() + %d, set()
while time.monotonic() < ends:
    sizes.add(sum(node["Alive"] and "CPU" in node["Resources"] for node in ray.nodes()))
    time.sleep(0.5)
print("ANSWER", *sizes)
"""
"""How many workers are in Ray, for longer than an idle one may stay."""
BURST = """
from ray.experimental.internal_kv import _internal_kv_exists
@ray.remote(num_cpus=1)
def where(gate):
    while not _internal_kv_exists(gate):  # waiting for an object would give the CPU back
        time.sleep(0.1)
    return pod()
print("ANSWER", *sorted(ray.get([where.remote(b"%s") for _ in range(%d)])))
"""
HUNGRY = """
from ray.experimental.internal_kv import _internal_kv_exists
@ray.remote(resources={"moon": 1})
def never():
    pass
waiting = never.remote()
while not _internal_kv_exists(b"%s"):
    ray.wait([waiting], timeout=0.2)
"""
OPEN = """
from ray.experimental.internal_kv import _internal_kv_put
_internal_kv_put(b"%s", b"")
"""


def manifest() -> Json:
    """The sample with two groups, and with the patience of a test."""
    made = small(yaml.safe_load(SAMPLE.read_text()))
    made["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] = IDLE_S
    (group,) = made["spec"]["workerGroupSpecs"]
    first = {**group, "priority": 10, "minReplicas": 1, "maxReplicas": 2}
    second = {**first, "groupName": "reserve", "priority": 1, "minReplicas": 0, "maxReplicas": 2}
    made["spec"]["workerGroupSpecs"] = [first, second]
    return made


@pytest.fixture(scope="module")
def module_stage() -> Iterator[RayStage]:
    with RayStage(manifest()) as stage:
        stage.until(lambda: len(stage.ready_workers()) == 1, "the minimum is there")
        yield stage


@pytest.fixture
def stage(module_stage: RayStage) -> Iterator[RayStage]:
    """At its minimum before and after."""
    yield module_stage
    module_stage.until(lambda: is_at_minimum(module_stage), "back at the minimum")


def is_at_minimum(stage: RayStage) -> bool:
    return stage.sizes() == LEAST and stage.replicas() == {"cpu": 1, "reserve": 0} and len(stage.ready_workers()) == 1


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(TASKS, id="tasks"),
        pytest.param(ACTORS, id="actors"),
        pytest.param(SPREAD, id="a STRICT_SPREAD placement group"),
    ],
)
def test_workers_come_for(stage: RayStage, program: str) -> None:
    (standing,) = stage.ready_workers()
    driver = stage.drive(program)
    stage.until(lambda: stage.replicas() == {"cpu": 2, "reserve": 0}, "one more is wanted")
    assert len(pods := answer_in(driver.result())) == 2
    assert standing in pods
    assert all("-cpu-worker-" in pod for pod in pods), "the reserve was not needed"


def test_request_resources_brings_workers_and_keeps_them_until_it_is_taken_back(stage: RayStage) -> None:
    stage.run("python", "-c", PRELUDE + REQUEST % 2)
    stage.until(lambda: len(stage.ready_workers()) == 2, "two workers stand by")
    sizes = answer_in(stage.run("python", "-c", PRELUDE + KEEPS % (2 * IDLE_S)))
    assert set(sizes) == {"2"}
    assert stage.replicas() == {"cpu": 2, "reserve": 0}
    stage.run("python", "-c", PRELUDE + REQUEST % 0)


def test_the_group_of_higher_priority_is_full_before_the_other_is_asked(stage: RayStage) -> None:
    driver = stage.drive(BURST % ("three", 3))
    stage.until(lambda: stage.sizes() == {"cpu": 2, "reserve": 1}, "two of the first, one of the reserve")
    stage.until(lambda: len(stage.ready_workers()) == 3, "all are Ready")
    stage.run("python", "-c", PRELUDE + OPEN % "three")
    assert len(set(answer_in(driver.result()))) == 3


def test_killing_the_autoscaler_five_times_during_a_burst_changes_nothing(stage: RayStage) -> None:
    driver = stage.drive(BURST % ("six", 6))
    killed = set()
    for _ in range(KILLS):
        killed.add(stage.kill_sidecar())
        assert all(count <= MOST[group] for group, count in stage.sizes().items())
    stage.until(lambda: len(stage.ready_workers()) == 4, "both groups are full")
    assert stage.sizes() == MOST
    limited = stage.until(lambda: stage.condition("ScalingLimited"), "the operator says why there are not six", 30)
    assert "the group is at its maximum of 2" in limited["message"]
    stage.run("python", "-c", PRELUDE + OPEN % "six")
    assert len(set(answer_in(driver.result()))) == 4
    assert (len(killed), stage.sidecar_log().count("restarting it")) == (KILLS, KILLS)
    assert stage.container("autoscaler")["restartCount"] == 0


@pytest.mark.rule("AS:B-5", "AS:B-14")
def test_ray_status_shows_our_state_also_after_a_restart_of_the_autoscaler(stage: RayStage) -> None:
    told = stage.ray_status()
    assert "1 cpu" in told
    assert "1 headgroup" in told
    assert "moon" not in told
    stage.kill_sidecar()
    driver = stage.drive(HUNGRY % "enough")
    stage.until(lambda: "moon" in stage.ray_status(), "ray status tells what waits", 60)
    limited = stage.until(lambda: stage.condition("ScalingLimited"), "and the operator that no group can hold it", 30)
    assert limited["reason"] == "NoFittingGroup"
    assert "moon" in limited["message"]
    stage.run("python", "-c", PRELUDE + OPEN % "enough")
    driver.result()
    stage.until(lambda: "moon" not in stage.ray_status(), "nothing waits any more", 60)


def test_the_record_stands_beside_the_order(stage: RayStage) -> None:
    record = json.loads(stage.cluster()["metadata"]["annotations"]["raytide.io/autoscaler-decision"])
    assert {group: decision["replicas"] for group, decision in record["groups"].items()} == stage.replicas()
