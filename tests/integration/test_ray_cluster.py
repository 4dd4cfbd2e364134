"""A RayCluster of a fixed size with real Ray: it runs tasks, is scaled manually, loses a process and a pod, and is deleted; then one that the Python client creates.

The sample as it stands, on a sandbox; the tests are one story and run in the order in which they are written.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import raytide
from support.deadlines import PATIENCE
from support.ray_environment import PATIENCE_S, PODS, PRELUDE, RayEnv, answer_in, small

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SAMPLE = Path(__file__).parents[2] / "samples" / "raycluster.yaml"
SPREAD = """
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where():
    time.sleep(0.25)
    return pod()
ends = time.monotonic() + 60
found = set()
while len(found) < %d and time.monotonic() < ends:
    found |= set(ray.get([where.remote() for _ in range(12)]))
print("ANSWER", *sorted(found))
"""
KILL_RAY = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/cmdline").read().split(chr(0))
    except OSError:
        continue
    if "start" in words and "--block" in words and any(word.endswith("/ray") for word in words):
        os.kill(int(pid), signal.SIGKILL)
"""
"""In the pod that it is to happen to."""


@pytest.fixture(scope="module")
def env() -> Iterator[RayEnv]:
    with RayEnv(small(yaml.safe_load(SAMPLE.read_text()))) as env:
        yield env


def wait_for_workers(env: RayEnv, count: int) -> list[str]:
    def look() -> list[str]:
        names = env.ready_workers()
        return names if len(names) == len(env.workers()) == count else []

    found: list[str] = env.until(look, f"{count} workers are Ready")
    return found


def test_tasks_run_on_the_head_and_on_every_worker(env: RayEnv) -> None:
    workers = wait_for_workers(env, 2)
    assert set(answer_in(env.run("python", "-c", PRELUDE + SPREAD % 3))) == {env.head(), *workers}


def test_a_group_that_was_scaled_manually_uses_all_its_workers(env: RayEnv) -> None:
    env.edit_group(0, replicas=3)
    workers = wait_for_workers(env, 3)
    assert set(answer_in(env.run("python", "-c", PRELUDE + SPREAD % 4))) == {env.head(), *workers}


def test_a_worker_whose_ray_was_killed_is_restarted_in_its_pod(env: RayEnv) -> None:
    workers = wait_for_workers(env, 3)
    uids = {pod["metadata"]["uid"] for pod in env.workers()}
    env.run("python", "-c", KILL_RAY, pod=workers[0], is_success_needed=False)
    env.until(lambda: env.container("ray-worker", workers[0]).get("restartCount"), "its container is restarted")
    assert wait_for_workers(env, 3) == workers
    assert {pod["metadata"]["uid"] for pod in env.workers()} == uids


def test_a_pod_that_is_lost_is_replaced(env: RayEnv) -> None:
    lost = wait_for_workers(env, 3)[0]
    env.sandbox.api("DELETE", f"{PODS}/{lost}?gracePeriodSeconds=0")
    env.until(lambda: lost not in {pod["metadata"]["name"] for pod in env.workers()}, "it is gone")
    assert lost not in wait_for_workers(env, 3)
    env.until(lambda: env.cluster()["status"].get("state") == "ready", "the RayCluster says ready", 30)


def client_of(env: RayEnv, workers: int | None = None) -> raytide.RayCluster:
    return raytide.RayCluster(env.name, workers=workers, namespace="default", kubeconfig=env.sandbox.kubeconfig)


def test_the_python_client_scales_it_waits_and_explains_it(env: RayEnv) -> None:
    cluster = client_of(env)
    status = cluster.scale(2).wait(PATIENCE_S * PATIENCE)
    assert status is not None
    assert (status.wanted, status.reason) == (2, "")
    assert (cluster.why().verdict, cluster.why().blockers) == ("NothingMissing", ())
    assert set(answer_in(env.run("python", "-c", PRELUDE + SPREAD % 3))) == {env.head(), *wait_for_workers(env, 2)}


def test_all_children_are_deleted_with_the_cluster(env: RayEnv) -> None:
    env.sandbox.api("DELETE", env.path)
    env.until(lambda: not env.pods(), "its pods are gone")
    env.until(lambda: not env.services(), "its services too", 30)


def test_a_cluster_that_the_python_client_describes_runs_tasks_until_it_deletes_it(env: RayEnv) -> None:
    cluster = client_of(env, workers=1).apply()
    status = cluster.wait(PATIENCE_S * PATIENCE)
    assert status is not None
    assert (status.wanted, status.ready) == (1, 1)
    assert set(answer_in(env.run("python", "-c", PRELUDE + SPREAD % 2))) == {env.head(), *wait_for_workers(env, 1)}
    cluster.delete()
    assert cluster.wait(PATIENCE_S * PATIENCE, until="deleted") is None
    env.until(lambda: not env.pods(), "its pods are gone")
