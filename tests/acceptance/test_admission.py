"""Admission forbids pods, or takes away what the operator finds them by (RM:F11); each reports its cause and ends by itself."""

import asyncio
from typing import Any

import pytest

from acceptance.stage import Stage
from acceptance.webhook import removing_label
from acceptance.world import MERGE, eventually
from support.builders import group, raycluster

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

NAME, WORKERS = "guarded", 3
GROUP_LABEL = "ray.io/group"
FORBIDDEN_FOR_S = 10.0
BACK_WITHIN_S = 45.0
"""The longest back-off of a rejected create is 30 s."""
MOST_ATTEMPTS = 8
"""In ten seconds, after 1, 2, 4 s, of workers of one group."""


async def condition(stage: Stage, kind: str) -> dict[str, Any]:
    """That condition of the cluster; empty while it has none."""
    conditions = (await stage.fleet.statuses())[NAME].get("conditions", [])
    return next((dict(each) for each in conditions if each["type"] == kind), {})


async def create(stage: Stage) -> None:
    """One cluster of three workers; the operator runs already."""
    await stage.operator(stage.direct_kubeconfig(await stage.account("op")))
    manifest = raycluster(group(replicas=WORKERS), name=NAME, namespace=stage.namespace)
    manifest["metadata"] = {"name": NAME, "namespace": stage.namespace}
    await stage.admin.call("POST", stage.fleet.path, manifest)


async def until_message(stage: Stage, kind: str, words: str) -> dict[str, Any]:
    """Wait until a condition has these words in its message."""

    async def has_words() -> dict[str, Any] | None:
        found = await condition(stage, kind)
        return found if words in found.get("message", "") else None

    found: dict[str, Any] = await eventually(f"{kind} says {words!r}", has_words)
    return found


async def until_running(stage: Stage) -> None:
    """Wait until all workers live and nothing is reported any more."""

    async def is_whole() -> bool:
        state = (await stage.fleet.statuses())[NAME].get("state")
        return state == "ready" and len(stage.pods.alive(NAME)) == WORKERS

    await eventually("all workers run", is_whole, within_s=BACK_WITHIN_S)
    assert await condition(stage, "ReplicaFailure") == {}
    assert await condition(stage, "WorkersMissing") == {}


@pytest.mark.rule("RM:F11", "RM:I18", "SC:S21")
async def test_pods_that_pod_security_forbids_are_reported_and_come_when_it_allows_them(stage: Stage):
    namespace = f"/api/v1/namespaces/{stage.namespace}"
    level = "pod-security.kubernetes.io/enforce"
    await stage.admin.call("PATCH", namespace, {"metadata": {"labels": {level: "restricted"}}}, content=MERGE)
    await create(stage)
    failure = await until_message(stage, "ReplicaFailure", 'violates PodSecurity "restricted:latest"')
    assert failure["status"] == "True"
    await asyncio.sleep(FORBIDDEN_FOR_S)
    assert stage.pods.born == {}
    await stage.admin.call("PATCH", namespace, {"metadata": {"labels": {level: None}}}, content=MERGE)
    await until_running(stage)


@pytest.mark.rule("RM:F11", "RM:I1", "RM:I13", "RM:I18")
async def test_pods_whose_label_a_webhook_removes_are_deleted_again_and_come_when_it_is_gone(stage: Stage):
    async with removing_label(stage, GROUP_LABEL) as webhook:
        await create(stage)
        await until_message(stage, "ReplicaFailure", f"admission removed or changed {GROUP_LABEL} of Pod")
        await asyncio.sleep(FORBIDDEN_FOR_S)
        assert 0 < webhook.changed <= 2 * MOST_ATTEMPTS
    await until_running(stage)
    unlabeled = [name for name, pod in stage.pods.by_name.items() if GROUP_LABEL not in pod["metadata"]["labels"]]
    assert unlabeled == []
