"""Objects generated from the CRDs are rejected with a reason or reconciled, deleted completely, and leak no secret.

The operator, the embedded API and its controllers run in virtual time, 26 objects in one cluster at a time. The seed is
drawn in each run and printed; `--specs-seed` repeats one batch.
"""

import asyncio
import logging
import random
import sys
from collections import Counter

import msgspec
import pytest

from raytide_sandbox.apiserver.routes import Request

from simulation.generated_specs import SECRET, Generator, texts
from simulation.in_process_transport import InProcessTransport
from simulation.manifests import group, new_cluster
from simulation.operator_under_test import OperatorUnderTest, SimulatedClock
from simulation.simulated_kube import NAMESPACE, RAYCLUSTERS, SimulatedKube
from simulation.training_environment import JobsOperator
from simulation.training_kube import JOBS, TrainingKube
from simulation.training_manifests import new_job

pytestmark = [pytest.mark.slow, pytest.mark.looptime]

OBJECTS = 26
RESTS_AFTER_S = 700.0
"""Back-off of creates that the API server rejects ends at 5 min; afterwards an object is looked at rarely."""
WATCHED_S = 60.0
MAX_WRITES = 4
"""Of one object in `WATCHED_S`: at rest none, and some for creates that are rejected again."""
GONE_AFTER_S = 300.0


class RayClusters:
    resource, path, kube, operator = RAYCLUSTERS, "/apis/ray.io/v1", SimulatedKube, OperatorUnderTest

    @staticmethod
    def example() -> dict:
        cluster = new_cluster([group("small", 1, 2), {**group("slices", 1, 2), "numOfHosts": 2}])
        head = cluster["spec"]["headGroupSpec"]
        head["rayStartParams"] = {"redis-password": SECRET}
        for part in (head, *cluster["spec"]["workerGroupSpecs"]):
            part["template"]["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": SECRET}]
        return cluster


class TrainingJobs:
    resource, path, kube, operator = JOBS, "/apis/paddlepaddle.org/v1", TrainingKube, JobsOperator

    @staticmethod
    def example() -> dict:
        job = new_job("job", 1, 2, cpu="100m", pserver={"min-instance": 1, "max-instance": 1})
        job["spec"]["trainer"]["env"] = [{"name": "TOKEN", "value": SECRET}]
        return job


def _new_operator(kind, kube: SimulatedKube, rng: random.Random, crashes: list[str]) -> OperatorUnderTest:
    return kind.operator(InProcessTransport(kube.api), SimulatedClock(kube.now), rng, crashes.append)


def _is_finished(obj: dict) -> bool:
    """Whether it has ended, by a deadline or a failure, and its owner asked to delete it a while after that."""
    conditions = obj.get("status", {}).get("conditions", ())
    has_ended = any(each["type"] in ("Succeeded", "Failed") and each["status"] == "True" for each in conditions)
    return has_ended and obj["spec"].get("ttlSecondsAfterFinished") is not None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per batch and kind."""
    metafunc.parametrize("batch", range(metafunc.config.getoption("--specs-batches")))


@pytest.fixture
def seed(request: pytest.FixtureRequest, batch: int) -> int:
    """The seed of one batch: drawn, or the seed of the command line plus the number of the batch."""
    asked = request.config.getoption("--specs-seed")
    drawn = random.SystemRandom().randrange(10**9) if asked is None else asked + batch
    sys.stdout.write(f"--specs-batches 1 --specs-seed {drawn}\n")  # shown if the test fails
    return drawn


@pytest.mark.parametrize("kind", [RayClusters, TrainingJobs], ids=["RayCluster", "TrainingJob"])
@pytest.mark.rule("SE:C10", "SE:C23", "RM:I9", "RM:I11", "RM:I13", "RM:I16", "RM:I17")
async def test_a_generated_object_stops_causing_writes_and_is_deleted_completely(kind, seed, caplog):
    caplog.set_level(logging.DEBUG, "raytide")
    rng = random.Random(seed)
    kube, crashes = kind.kube(rng), []
    operator = _new_operator(kind, kube, rng, crashes)
    controllers = asyncio.create_task(kube.run_controllers())
    operator.start()
    plural = kind.resource.partition(".")[0]
    path = f"{kind.path}/namespaces/{NAMESPACE}/{plural}"
    generator, accepted = Generator(kube.crd, kind.example(), rng), []
    last = {}  # every object as it was last written
    kube.store.subscribe(lambda change: last.update({(change.key.resource, change.key.name): change.entry}))
    for number in range(OBJECTS):
        body = msgspec.json.encode(generator.draw(f"g{number}"))
        answer = kube.api.handle(Request("POST", path, {}, {}, body))
        assert answer.status in (201, 400, 422), (answer.status, answer.body)
        if answer.status == 201:
            accepted.append(f"g{number}")
        else:
            assert "spec" in str(answer.body), "a rejection names the field"
    assert accepted

    await asyncio.sleep(RESTS_AFTER_S)
    writes: Counter[str] = Counter()
    kube.store.subscribe(lambda change: writes.update([f"{change.key.resource} {change.key.name}"]))
    await asyncio.sleep(WATCHED_S)
    assert not controllers.done(), controllers
    busy = {name: count for name, count in writes.items() if count > MAX_WRITES and not name.startswith("events")}
    assert not busy, "continuous writes"
    gone = [name for name in accepted if kube.store.find(kind.resource, NAMESPACE, name) is None]
    assert all(_is_finished(last[kind.resource, name].obj()) for name in gone), gone
    accepted = [name for name in accepted if name not in gone]
    for name in accepted:
        found = kube.store.find(kind.resource, NAMESPACE, name).obj()
        assert found.get("status"), f"{name} has no status: {found}"
        assert not any(SECRET in text for text in texts(found["status"])), name
    events = [entry.obj() for _, entry in kube.store.entries("events")]
    assert not [event for event in events if SECRET in str(event)]

    for name in accepted:
        assert kube.api.handle(Request("DELETE", f"{path}/{name}", {}, {}, b"")).status == 200
    await asyncio.sleep(GONE_AFTER_S)
    assert [key.name for key, _ in kube.store.entries(kind.resource)] == []
    pods = [entry.obj()["metadata"] for _, entry in kube.store.entries("pods", NAMESPACE)]
    # A finalizer comes from the drawn template alone, and holds a deleted pod until its owner removes it.
    assert [pod["name"] for pod in pods if not ("deletionTimestamp" in pod and pod.get("finalizers") == ["a/b"])] == []
    await operator.stop()
    controllers.cancel()
    assert not crashes
    leaks = [record for record in caplog.records if SECRET in record.getMessage() or record.exc_info]
    assert not leaks, leaks[0].getMessage()
