"""Admission rejects pods or removes the operator's labels (RM:F11): the cause is reported and retries are bounded."""

import asyncio
from typing import Any

import pytest

from acceptance.environment import Env
from acceptance.fleet import MERGE, eventually
from acceptance.webhook import removing_label
from support.builders import group, raycluster

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

NAME, WORKERS = "guarded", 3
GROUP_LABEL = "ray.io/group"
FORBIDDEN_FOR_S = 10.0
BACK_WITHIN_S = 45.0
"""The longest back-off of a rejected create is 30 s."""
MOST_ATTEMPTS = 8
"""In ten seconds, after 1, 2, 4 s, of workers of one group."""


async def condition(env: Env, kind: str) -> dict[str, Any]:
    """That condition of the cluster; empty while it has none."""
    conditions = (await env.fleet.statuses())[NAME].get("conditions", [])
    return next((dict(each) for each in conditions if each["type"] == kind), {})


async def create(env: Env) -> None:
    """One cluster of three workers; the operator runs already."""
    await env.operator(env.direct_kubeconfig(await env.account("op")))
    manifest = raycluster(group(replicas=WORKERS), name=NAME, namespace=env.namespace)
    manifest["metadata"] = {"name": NAME, "namespace": env.namespace}
    await env.admin.call("POST", env.fleet.path, manifest)


async def until_message(env: Env, kind: str, text: str) -> dict[str, Any]:
    """Wait until a condition has these words in its message."""

    async def has_message() -> dict[str, Any] | None:
        found = await condition(env, kind)
        return found if text in found.get("message", "") else None

    found: dict[str, Any] = await eventually(f"{kind} says {text!r}", has_message)
    return found


async def until_running(env: Env) -> None:
    """Wait until all workers live and nothing is reported any more."""

    async def is_whole() -> bool:
        state = (await env.fleet.statuses())[NAME].get("state")
        return state == "ready" and len(env.pods.alive(NAME)) == WORKERS

    await eventually("all workers run", is_whole, within_s=BACK_WITHIN_S)
    assert await condition(env, "ReplicaFailure") == {}
    assert await condition(env, "WorkersMissing") == {}


@pytest.mark.rule("RM:F11", "RM:I18", "SC:S21")
async def test_pods_that_pod_security_forbids_are_reported_and_come_when_it_allows_them(env: Env):
    namespace = f"/api/v1/namespaces/{env.namespace}"
    level = "pod-security.kubernetes.io/enforce"
    await env.admin.call("PATCH", namespace, {"metadata": {"labels": {level: "restricted"}}}, content=MERGE)
    await create(env)
    failure = await until_message(env, "ReplicaFailure", 'violates PodSecurity "restricted:latest"')
    assert failure["status"] == "True"
    await asyncio.sleep(FORBIDDEN_FOR_S)
    assert env.pods.created == {}
    await env.admin.call("PATCH", namespace, {"metadata": {"labels": {level: None}}}, content=MERGE)
    await until_running(env)


@pytest.mark.rule("RM:F11", "RM:I1", "RM:I13", "RM:I18")
async def test_pods_whose_label_a_webhook_removes_are_deleted_and_recreated_without_the_webhook(env: Env):
    async with removing_label(env, GROUP_LABEL) as webhook:
        await create(env)
        await until_message(env, "ReplicaFailure", f"admission removed or changed {GROUP_LABEL} of Pod")
        await asyncio.sleep(FORBIDDEN_FOR_S)
        assert 0 < webhook.changed <= 2 * MOST_ATTEMPTS
    await until_running(env)
    unlabeled = [name for name, pod in env.pods.by_name.items() if GROUP_LABEL not in pod["metadata"]["labels"]]
    assert unlabeled == []
