"""S4: a quota for two and a half slices allows two, and the third as soon as the quota is raised."""

import asyncio

import pytest

from acceptance.environment import Env
from acceptance.fleet import MERGE, eventually
from support.builders import group, raycluster, template
from support.deadlines import PATIENCE

HOSTS, REPLICAS = 4, 3
CAPACITY, MORE_CAPACITY = 10, 12
NAME, QUOTA = "slices", "team"
TPU = "google.com/tpu"
PARTIAL_FOR_S = 30.0
WATCHED_S = 90.0
"""How long nothing may change under the quota; ten minutes of it pass in virtual time in tests/simulation."""
MOST_DELETES = 8
THIRD_WITHIN_S = 15.0


def slices(namespace: str) -> dict:
    """A cluster of three slices of four hosts, each with one accelerator: a quota of accelerators leaves the head out."""
    worker = template("ray-worker")
    for amounts in worker["spec"]["containers"][0]["resources"].values():
        amounts[TPU] = "1"
    manifest = raycluster(group(replicas=REPLICAS, numOfHosts=HOSTS, template=worker), name=NAME, namespace=namespace)
    manifest["metadata"] = {"name": NAME, "namespace": namespace}
    return manifest


def replicas(env: Env) -> dict[str, set[str]]:
    """Replica -> the pods of its live hosts."""
    found: dict[str, set[str]] = {}
    for name in env.pods.alive(NAME):
        labels = env.pods.by_name[name]["metadata"]["labels"]
        found.setdefault(labels["ray.io/worker-group-replica-name"], set()).add(name)
    return found


def whole(env: Env) -> set[str]:
    """The pods of all whole replicas."""
    return {name for hosts in replicas(env).values() if len(hosts) == HOSTS for name in hosts}


async def longest_partial_s(env: Env, for_s: float) -> float:
    """For how long at a stretch there was an incomplete replica, at most."""
    loop = asyncio.get_running_loop()
    ends_at, since, longest = loop.time() + for_s, None, 0.0
    while loop.time() < ends_at:
        is_partial = any(len(hosts) != HOSTS for hosts in replicas(env).values())
        since = (since or loop.time()) if is_partial else None
        longest = max(longest, loop.time() - since) if since else longest
        await asyncio.sleep(0.2)
    return longest


@pytest.mark.rule("SC:S4", "RM:I6")
@pytest.mark.kube
@pytest.mark.timeout(600)
async def test_slices_under_a_quota(env: Env):
    quotas = f"/api/v1/namespaces/{env.namespace}/resourcequotas"
    hard = {f"requests.{TPU}": str(CAPACITY)}
    await env.admin.call("POST", quotas, {"metadata": {"name": QUOTA}, "spec": {"hard": hard}})

    async def is_counted() -> bool:
        return bool((await env.admin.call("GET", f"{quotas}/{QUOTA}")).get("status", {}).get("hard"))

    await eventually("the quota is in force", is_counted)
    await env.operator(env.direct_kubeconfig(await env.account("op")))
    await env.admin.call("POST", env.fleet.path, slices(env.namespace))

    partial_s = await longest_partial_s(env, WATCHED_S)
    up = whole(env)
    assert len(up) == 2 * HOSTS == len(env.pods.alive(NAME)), "exactly two slices"
    assert partial_s <= PARTIAL_FOR_S * PATIENCE
    deleted = len(env.pods.doomed)
    assert deleted <= MOST_DELETES
    conditions = (await env.fleet.statuses())[NAME]["conditions"]
    failure = next(each for each in conditions if each["type"] == "ReplicaFailure")
    assert f"exceeded quota: {QUOTA}" in failure["message"]

    loop = asyncio.get_running_loop()
    raised = loop.time()
    await env.admin.call(
        "PATCH", f"{quotas}/{QUOTA}", {"spec": {"hard": {f"requests.{TPU}": str(MORE_CAPACITY)}}}, content=MERGE
    )

    async def is_third_there() -> bool:
        return len(whole(env)) == REPLICAS * HOSTS

    await eventually("the third slice is up", is_third_there, within_s=THIRD_WITHIN_S)
    assert up < whole(env), "the first two were not touched"
    env.record(
        f"S4: two slices up, none partial for more than {partial_s:.1f} s, {deleted} deletes in {WATCHED_S:.0f} s, "
        f"third {loop.time() - raised:.1f} s after the quota was raised"
    )
