"""GCS fault tolerance with real Ray: the head dies, what it ran lives on, and nothing of its state is left after the delete.

For both backends, RocksDB on a volume and real Redis, which two RayClusters share; the tests are one story and run in the
order in which they are written.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from support.ray_environment import PODS, PRELUDE, RAYCLUSTERS, RayEnv, answer_in, is_ready, small
from support.redis_server import ASK, NAME, PASSWORD, PORT, redis_objects
from support.sandbox_process import Json

pytestmark = pytest.mark.timeout(600)

SAMPLE = Path(__file__).parents[2] / "samples" / "raycluster-autoscaler.yaml"
SECOND = "second"
EVENTS = "/api/v1/namespaces/default/events"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
START = """
@ray.remote(num_cpus=0.5, max_restarts=-1, max_task_retries=-1)
class Counter:
    def __init__(self):
        self.count = 0
    def add(self):
        self.count += 1
        return self.count, pod()
counter = Counter.options(name="counter", namespace="test", lifetime="detached").remote()
print("ANSWER", *ray.get(counter.add.remote(), timeout=120))
"""
GO_ON = """
print("ANSWER", *ray.get(ray.get_actor("counter", namespace="test").add.remote(), timeout=120))
"""
MORE = """
@ray.remote(num_cpus=1)
def where():
    time.sleep(2)
    return pod()
ends, found = time.monotonic() + 120, set()
while len(found) < 2 and time.monotonic() < ends:
    found |= set(ray.get([where.remote() for _ in range(4)]))
print("ANSWER", *sorted(found))
"""
KILL_GCS = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        name = open(f"/proc/{pid}/cmdline").read().split(chr(0))[0]
    except OSError:
        continue
    if name.endswith("/gcs_server"):
        os.kill(int(pid), signal.SIGKILL)
"""
"""In the head that it is to happen to."""


@dataclass(frozen=True)
class Backend:
    """Where the GCS keeps its state."""

    options: Json
    size: Callable[[RayEnv], int]
    """How much is kept there: of all clusters together."""
    ends: tuple[str, ...]
    """The reasons of events with which each cluster's state begins or ends."""
    flags: tuple[str, ...] = ()
    before: Callable[[], Mapping[str, Json]] = dict
    finalizers: tuple[str, ...] = field(default=())


def keys(env: RayEnv) -> int:
    return int(answer_in(env.run("python", "-c", ASK, "DBSIZE", pod=NAME))[0])


def claims(env: RayEnv) -> int:
    return len(env.sandbox.get(CLAIMS)["items"])


BACKENDS = {
    "redis": Backend(
        options={"redisAddress": f"{NAME}:{PORT}", "redisPassword": {"value": PASSWORD}},
        size=keys,
        before=redis_objects,
        finalizers=("ray.io/gcs-ft-redis-cleanup-finalizer",),
        ends=("CreatedRedisCleanupJob",),
    ),
    "rocksdb": Backend(
        options={"backend": "rocksdb", "storage": {"subPath": "ray"}},
        size=claims,
        flags=("--feature-gates", "GCSFaultToleranceEmbeddedStorage=true"),
        ends=("CreatedPVC",),
    ),
}


def manifest(backend: Backend, *, name: str = "", workers: int) -> Json:
    """A RayCluster whose head runs no tasks, with its state there."""
    found = small(yaml.safe_load(SAMPLE.read_text()))
    found["metadata"]["name"] = name or found["metadata"]["name"]
    spec = found["spec"]
    del spec["autoscalerOptions"]["version"]  # with it, no container is restarted
    spec["workerGroupSpecs"][0] |= {"replicas": workers, "minReplicas": workers, "maxReplicas": 3}
    spec["gcsFaultToleranceOptions"] = backend.options
    return found


@pytest.fixture(
    scope="module",
    params=[pytest.param("rocksdb", marks=pytest.mark.ray), pytest.param("redis", marks=pytest.mark.redis)],
)
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]


@pytest.fixture(scope="module")
def env(backend: Backend) -> Iterator[RayEnv]:
    with RayEnv(manifest(backend, workers=1), backend.before(), flags=backend.flags) as env:
        yield env


def pod_uids(env: RayEnv) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in env.workers()}


def second_head(env: RayEnv) -> str:
    pods = env.sandbox.get(f"{PODS}?labelSelector=ray.io%2Fcluster%3D{SECOND}")["items"]
    return next((pod["metadata"]["name"] for pod in pods if is_ready(pod)), "")


def test_a_detached_actor_runs_on_a_worker(env: RayEnv, backend: Backend) -> None:
    env.until(lambda: len(env.ready_workers()) == 1, "the worker is Ready")
    count, where = answer_in(env.run("python", "-c", PRELUDE + START))
    assert (count, where) == ("1", env.ready_workers()[0])
    assert tuple(env.cluster()["metadata"].get("finalizers", ())) == backend.finalizers
    assert backend.size(env) > 0


@pytest.mark.rule("SC:S15", "RC:HP-6", "RC:FT-5")
def test_the_actor_and_the_worker_outlive_the_head_pod(env: RayEnv) -> None:
    before, head = pod_uids(env), env.head()
    env.sandbox.api("DELETE", f"{PODS}/{head}?gracePeriodSeconds=0")
    env.until(lambda: env.is_head_ready() and env.head() != head, "another head is Ready")
    assert answer_in(env.run("python", "-c", PRELUDE + GO_ON))[0] == "2"
    assert pod_uids(env) == before
    assert not env.container("ray-worker", next(iter(before)))["restartCount"]


@pytest.mark.rule("SC:S15")
def test_the_actor_outlives_a_gcs_that_is_killed_and_restarted_in_place(env: RayEnv) -> None:
    before, head = pod_uids(env), env.head()
    env.run("python", "-c", KILL_GCS, pod=head, is_success_needed=False)
    env.until(lambda: env.container("ray-head").get("restartCount"), "the container is restarted")
    env.until(env.is_head_ready, "the head is Ready again")
    assert answer_in(env.run("python", "-c", PRELUDE + GO_ON))[0] == "3"
    assert (pod_uids(env), env.head()) == (before, head)


@pytest.mark.rule("SC:S15")
def test_the_autoscaler_goes_on_where_it_was(env: RayEnv) -> None:
    before = pod_uids(env)
    found = answer_in(env.run("python", "-c", PRELUDE + MORE))
    assert len(found) == 2
    assert before.items() <= pod_uids(env).items()


@pytest.mark.rule("RC:FT-2", "RC:FIN-3", "RC:RJ-3", "RC:PVC-3")
def test_a_cluster_that_is_deleted_leaves_the_state_of_another_alone(env: RayEnv, backend: Backend) -> None:
    status, answer = env.sandbox.api("POST", RAYCLUSTERS, manifest(backend, name=SECOND, workers=0))
    assert status == 201, answer
    head = env.until(lambda: second_head(env), "the head of the second cluster is Ready")
    both = backend.size(env)
    env.sandbox.api("DELETE", env.path)
    env.until(lambda: env.sandbox.api("GET", env.path)[0] == 404, "the first cluster is gone")
    env.until(lambda: 0 < backend.size(env) < both, "only the state of the second is left")
    env.until(lambda: not env.pods(), "its pods are gone")
    assert second_head(env) == head
    env.run("ray", "status", pod=head)


@pytest.mark.rule("RC:FIN-3", "RC:RJ-1", "RC:RJ-3", "RC:PVC-3")
def test_after_the_last_cluster_nothing_is_left(env: RayEnv, backend: Backend) -> None:
    env.sandbox.api("DELETE", f"{RAYCLUSTERS}/{SECOND}")
    env.until(lambda: env.sandbox.api("GET", f"{RAYCLUSTERS}/{SECOND}")[0] == 404, "it is gone")
    env.until(lambda: backend.size(env) == 0, "its state is gone")
    env.until(lambda: not env.sandbox.get(JOBS)["items"], "its Job is gone")
    told = ("CreatedRedisCleanupJob", "RedisCleanupSkipped", "RedisCleanupFailed", "CreatedPVC", "FailedToCreatePVC")
    reasons = [event["reason"] for event in env.sandbox.get(EVENTS)["items"] if event["reason"] in told]
    assert reasons == [*backend.ends] * 2
