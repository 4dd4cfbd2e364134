"""A mutating webhook that removes a label of pods causes no surplus pods (RM:F11).

The informers of the controllers select pods by their labels. A pod without one of them is not in the cache, and each pass would
create another pod.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from raytide.api import constants, trainingjob_constants
from raytide_sandbox.apiserver.request_response import Request
from support import virtual_time

from simulation.environment import Environment, log_errors_as_violations
from simulation.manifests import NAME, group, new_cluster
from simulation.training_desired_state import condition
from simulation.training_environment import TrainingEnvironment
from simulation.training_manifests import new_job

pytestmark = pytest.mark.looptime

MUTATED_FOR_S = 300.0
MAX_CREATES = 50
"""Creates in five minutes: one attempt in 1, 2, 4 … 30 s, of a window that begins with one create."""
MAX_PODS = 4
"""A head, those of the latest attempt, and those whose grace period has not ended."""
SETTLED_WITHIN_S = 120.0
EXPECTED_VIOLATION = "is deleted, although"
"""The violation that the checks record for the delete of such a pod: it counts by its role, although its index is missing."""


def without_label(label: str) -> Callable[[Request], Request]:
    """A webhook that removes this label of each new pod."""

    def mutate(request: Request) -> Request:
        if request.method != "POST" or not request.path.endswith("/pods"):
            return request
        pod = msgspec.json.decode(request.body)
        pod["metadata"]["labels"].pop(label, None)
        return replace(request, body=msgspec.json.encode(pod))

    return mutate


def message_of_cluster(env: Environment) -> str:
    """Why workers are missing, as the RayCluster's status has it."""
    conditions: list[dict[str, Any]] = (env.kube.cluster(NAME) or {}).get("status", {}).get("conditions", [])
    return next((str(each["message"]) for each in conditions if each["type"] == constants.REPLICA_FAILURE), "")


def message_of_job(env: Environment) -> str:
    """Why the TrainingJob waits, as its status has it."""
    (job,) = env.clusters()
    return str(condition(job, trainingjob_constants.WAITING).get("message"))


@pytest.mark.rule("RM:F11", "RM:I1", "RM:I13", "RM:I18")
@pytest.mark.parametrize(
    ("kind", "manifest", "label", "message_of"),
    [
        pytest.param(
            Environment,
            new_cluster([group("a", 2)]),
            "ray.io/node-type",
            message_of_cluster,
            id="a RayCluster's node type",
        ),
        pytest.param(
            TrainingEnvironment,
            new_job(NAME, 2, 2),
            trainingjob_constants.INDEX_LABEL,
            message_of_job,
            id="a TrainingJob's index",
        ),
    ],
)
def test_pods_that_lose_a_label_at_creation_are_deleted_and_retried_with_backoff(
    kind: type[Environment], manifest: dict[str, Any], label: str, message_of: Callable[[Environment], str]
) -> None:
    async def run() -> tuple[int, list[str]]:
        env = kind(5)
        most = 0
        with log_errors_as_violations(env.checks):
            env.open()
            env.start()
            env.transport.mutate = without_label(label)
            env.kube.create(manifest)
            for _ in range(int(MUTATED_FOR_S)):
                await env.pass_time(1.0)
                most = max(most, env.kube.store.count("pods"))
            assert f"admission removed or changed {label} of Pod" in message_of(env)
            creates = sum(write.startswith("POST") and "/pods " in write for write in env.checks.writes)
            assert creates <= MAX_CREATES
            env.transport.mutate = lambda request: request
            await env.settle(SETTLED_WITHIN_S)
            await env.close()
        return most, env.checks.violations

    most, violations = virtual_time.run(run())
    assert [found for found in violations if EXPECTED_VIOLATION not in found] == []
    assert most <= MAX_PODS
