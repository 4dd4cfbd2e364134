"""An operator that watches one namespace, with Roles there, behaves as one that watches all namespaces.

Scenarios with the rights of the chart's `watchNamespaces` and no other. `RAYTIDE_TEST_NAMESPACED=1 pytest -m kube
tests/acceptance` runs all of this folder so; here are those that are short.
"""

import pytest

from acceptance.environment import Env
from acceptance.fleet import MERGE, eventually
from acceptance.job_environment import JobEnv
from acceptance.scaled import scene
from acceptance.test_delete_while_off import test_a_cluster_and_then_its_namespace_are_deleted_without_an_operator  # noqa: F401
from support.builders import group

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600), pytest.mark.rule("FD:SEC-F5")]

SLOTS = 8
CAPACITY, MORE_CAPACITY = 3, 5
DEMAND = 5
SETTLE = {"RAYTIDE_SHARING_SETTLE": "0.3"}


@pytest.fixture
def is_namespaced() -> bool:
    """True, see the module's docstring."""
    return True


def rejected(log: str) -> list[str]:
    """What the operator was not allowed to do or misses."""
    missing = ("forbidden", "missing permission", "missing optional permission")
    return [line for line in log.splitlines() if any(words in line for words in missing)]


async def test_a_cluster_grows_and_shrinks_with_the_demand(env: Env):
    scaled = await scene(env, group(replicas=0, high=10))
    await scaled.ask_for(DEMAND, DEMAND, within_s=60)
    assert [line for operator in env.operators for line in rejected(operator.log)] == []


async def test_jobs_stay_within_the_quota_of_their_namespace_and_grow_when_it_does(jobs: JobEnv):
    quotas = f"/api/v1/namespaces/{jobs.namespace}/resourcequotas"
    await jobs.admin.call(
        "POST", quotas, {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": str(CAPACITY)}}}
    )

    async def is_counted() -> bool:
        return bool((await jobs.admin.call("GET", f"{quotas}/team")).get("status", {}).get("hard"))

    await eventually("the quota is in force", is_counted)
    await jobs.nodes_ready(await jobs.node("cpus", cpu=str(SLOTS)))
    sharing = await jobs.shared(**SETTLE)
    await jobs.submit("a", 1, SLOTS)

    async def is_full(size: int) -> bool:
        return jobs.running()["a"] == size

    await eventually("it has what the quota allows", lambda: is_full(CAPACITY), within_s=60)
    await sharing.has_reconciled()
    assert (await jobs.job("a"))["spec"]["trainer"]["replicas"] == CAPACITY, "no more is ordered than the quota allows"
    more = {"spec": {"hard": {"requests.cpu": str(MORE_CAPACITY)}}}
    await jobs.admin.call("PATCH", f"{quotas}/team", more, content=MERGE)
    await eventually("it grows with the quota", lambda: is_full(MORE_CAPACITY), within_s=60)
    assert rejected(sharing.operator.log) == []
