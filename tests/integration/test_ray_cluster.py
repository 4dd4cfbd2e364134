"""A RayCluster of a fixed size with real Ray: it works, is scaled by hand, loses a process, loses a pod, and goes.

The sample as it stands, on a sandbox; the tests are one story and run in the order in which they are written.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.ray_stage import PODS, PRELUDE, RayStage, answer_in, small

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
def stage() -> Iterator[RayStage]:
    with RayStage(small(yaml.safe_load(SAMPLE.read_text()))) as stage:
        yield stage


def wait_for_workers(stage: RayStage, count: int) -> list[str]:
    def look() -> list[str]:
        names = stage.ready_workers()
        return names if len(names) == len(stage.workers()) == count else []

    found: list[str] = stage.until(look, f"{count} workers are Ready")
    return found


def test_tasks_run_on_the_head_and_on_every_worker(stage: RayStage) -> None:
    workers = wait_for_workers(stage, 2)
    assert set(answer_in(stage.run("python", "-c", PRELUDE + SPREAD % 3))) == {stage.head(), *workers}


def test_a_group_that_was_scaled_by_hand_works_with_all_its_workers(stage: RayStage) -> None:
    stage.edit_group(0, replicas=3)
    workers = wait_for_workers(stage, 3)
    assert set(answer_in(stage.run("python", "-c", PRELUDE + SPREAD % 4))) == {stage.head(), *workers}


def test_a_worker_whose_ray_was_killed_is_started_again_in_its_pod(stage: RayStage) -> None:
    workers = wait_for_workers(stage, 3)
    uids = {pod["metadata"]["uid"] for pod in stage.workers()}
    stage.kill_in(workers[0], KILL_RAY)
    stage.until(lambda: stage.container("ray-worker", workers[0]).get("restartCount"), "its container is restarted")
    assert wait_for_workers(stage, 3) == workers
    assert {pod["metadata"]["uid"] for pod in stage.workers()} == uids


def test_a_pod_that_is_lost_is_replaced(stage: RayStage) -> None:
    lost = wait_for_workers(stage, 3)[0]
    stage.sandbox.api("DELETE", f"{PODS}/{lost}?gracePeriodSeconds=0")
    stage.until(lambda: lost not in {pod["metadata"]["name"] for pod in stage.workers()}, "it is gone")
    assert lost not in wait_for_workers(stage, 3)
    stage.until(lambda: stage.cluster()["status"].get("state") == "ready", "the RayCluster says ready", 30)


def test_everything_goes_with_the_cluster(stage: RayStage) -> None:
    stage.sandbox.api("DELETE", stage.path)
    stage.until(lambda: not stage.pods(), "its pods are gone")
    stage.until(lambda: not stage.services(), "its services too", 30)
