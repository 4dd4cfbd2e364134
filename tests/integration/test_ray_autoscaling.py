"""Autoscaling with real Ray: a RayCluster follows its demand, up, down and while its autoscaler is killed.

One cluster for the whole file: a group of one or two workers, and a reserve that is asked only when the first is full.
Demand comes from tasks, actors, placement groups and `request_resources`, in drivers on the head; every test leaves the
cluster at its minimum. Nothing is faked; every wait has a deadline.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.ray_environment import PODS, PRELUDE, RayEnv, answer_in, small
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
def module_env() -> Iterator[RayEnv]:
    with RayEnv(manifest()) as env:
        env.until(lambda: len(env.ready_workers()) == 1, "the minimum is there")
        yield env


@pytest.fixture
def env(module_env: RayEnv) -> Iterator[RayEnv]:
    """At its minimum before and after."""
    yield module_env
    module_env.until(lambda: is_at_minimum(module_env), "back at the minimum")


def is_at_minimum(env: RayEnv) -> bool:
    return env.sizes() == LEAST and env.replicas() == {"cpu": 1, "reserve": 0} and len(env.ready_workers()) == 1


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(TASKS, id="tasks"),
        pytest.param(ACTORS, id="actors"),
        pytest.param(SPREAD, id="a STRICT_SPREAD placement group"),
    ],
)
def test_workers_come_for(env: RayEnv, program: str) -> None:
    (ready_worker,) = env.ready_workers()
    driver = env.drive(program)
    env.until(lambda: env.replicas() == {"cpu": 2, "reserve": 0}, "one more is wanted")
    assert len(pods := answer_in(driver.result())) == 2
    assert ready_worker in pods
    assert all("-cpu-worker-" in pod for pod in pods), "the reserve was not needed"


def test_request_resources_launches_workers_and_keeps_them_until_it_is_withdrawn(env: RayEnv) -> None:
    env.run("python", "-c", PRELUDE + REQUEST % 2)
    env.until(lambda: len(env.ready_workers()) == 2, "two workers are ready")
    sizes = answer_in(env.run("python", "-c", PRELUDE + KEEPS % (2 * IDLE_S)))
    assert set(sizes) == {"2"}
    assert env.replicas() == {"cpu": 2, "reserve": 0}
    env.run("python", "-c", PRELUDE + REQUEST % 0)


def test_the_group_of_higher_priority_is_full_before_the_other_is_launched(env: RayEnv) -> None:
    driver = env.drive(BURST % ("three", 3))
    env.until(lambda: env.sizes() == {"cpu": 2, "reserve": 1}, "two of the first, one of the reserve")
    env.until(lambda: len(env.ready_workers()) == 3, "all are Ready")
    env.run("python", "-c", PRELUDE + OPEN % "three")
    assert len(set(answer_in(driver.result()))) == 3


def test_killing_the_autoscaler_five_times_during_a_burst_changes_nothing(env: RayEnv) -> None:
    driver = env.drive(BURST % ("six", 6))
    killed = set()
    for _ in range(KILLS):
        killed.add(env.kill_sidecar())
        assert all(count <= MOST[group] for group, count in env.sizes().items())
    env.until(lambda: len(env.ready_workers()) == 4, "both groups are full")
    assert env.sizes() == MOST
    limited = env.until(lambda: env.condition("ScalingLimited"), "the operator says why there are not six", 30)
    assert "the group is at its maximum of 2" in limited["message"]
    env.run("python", "-c", PRELUDE + OPEN % "six")
    assert len(set(answer_in(driver.result()))) == 4
    assert (len(killed), env.sidecar_log().count("restarting it")) == (KILLS, KILLS)
    assert env.container("autoscaler")["restartCount"] == 0


@pytest.mark.rule("D27")
def test_the_container_of_the_autoscaler_is_restarted_although_the_pod_restarts_no_other(env: RayEnv) -> None:
    assert env.sandbox.get(f"{PODS}/{env.head()}")["spec"]["restartPolicy"] == "Never"
    started = env.container("autoscaler")["restartCount"]
    env.kill_supervisor()
    driver = env.drive(BURST % ("again", 2))
    env.until(lambda: env.sizes() == {"cpu": 2}, "it launches a worker")
    again = env.container("autoscaler")
    assert (again["restartCount"], again["ready"]) == (started + 1, True)
    env.until(lambda: env.condition("HeadPodReady")["status"] == "True", "the head is Ready")
    env.run("python", "-c", PRELUDE + OPEN % "again")
    driver.result()


@pytest.mark.rule("AS:B-5", "AS:B-14")
def test_ray_status_shows_the_autoscalers_state_also_after_its_restart(env: RayEnv) -> None:
    status = env.ray_status()
    assert "1 cpu" in status
    assert "1 headgroup" in status
    assert "moon" not in status
    env.kill_sidecar()
    driver = env.drive(HUNGRY % "enough")
    env.until(lambda: "moon" in env.ray_status(), "ray status shows the pending demand", 60)
    limited = env.until(lambda: env.condition("ScalingLimited"), "and the operator that no group can hold it", 30)
    assert limited["reason"] == "NoFittingGroup"
    assert "moon" in limited["message"]
    env.run("python", "-c", PRELUDE + OPEN % "enough")
    driver.result()
    env.until(lambda: "moon" not in env.ray_status(), "nothing waits any more", 60)


def test_the_record_has_the_replicas_of_the_spec(env: RayEnv) -> None:
    record = json.loads(env.cluster()["metadata"]["annotations"]["raytide.io/autoscaler-decision"])
    assert {group: decision["replicas"] for group, decision in record["groups"].items()} == env.replicas()
