"""RayClusters that KubeRay made, taken over while they run.

Every start (takeover_records.py) is loaded into a namespace of its own, with everything that KubeRay had stored; then our
operator starts, once for all of them. No pod may notice (SC:S19); then people scale and delete as before. On the real
control plane, with `KUBERAY=<path to a KubeRay manager>`, the operators are switched back and forth once more.
"""

import asyncio
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from integration.clusters import APIS, COLLECTED_S, new_cluster
from integration.embedded_cluster import Operator, has_reconciled, holds_while, until
from integration.takeover_loading import Loaded, is_waiting, load, stamps
from integration.takeover_switching import OUR_PASSES, Peer, settled
from raytide.api import constants
from support.ports import free_port
from support.takeover_records import starts

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

Json = dict[str, Any]

TWO_HEADS = "02-head-only~two-heads"
NEEDS_NEW_SERVICES = {
    "01-minimal~service-of-an-earlier-cluster": 1,
    "07-multi-host~services-of-an-earlier-cluster": 2,
}
"""And how many: a garbage collector may have deleted the old ones before the test reads."""
SERVICES_WITHOUT_OWNER = ("01-minimal~service-without-owner", "07-multi-host~services-without-owner")
SUSPENDING = ("01-minimal~suspending", "07-multi-host~suspending")
DELETING = "08-ft-redis~deleting"
"""These three were recorded in the middle of something that has to be finished."""
STEADY = [name for name in starts() if name not in (TWO_HEADS, *NEEDS_NEW_SERVICES, *SUSPENDING, DELETING)]
"""Nothing whatever is to be done for these."""
STAMPED_ANEW = ("30-recreate", "30-recreate~old-stamps")
"""With upgrade strategy Recreate, KubeRay writes its version and hash into a head pod that another version of it made."""
REJECTED = {
    "09-ft-rocksdb": "KubeRay made nothing of it either: the feature gate is off",
    "17-auth-token": "the operator may not create Secrets, and cannot know that KubeRay has made one",
}
"""Nothing may be added to these, and what runs stays."""
WITHOUT_PODS = ("21-suspend",)
HELD_BY_A_FINALIZER = [name for name in STEADY if name.startswith(("08-", "10-"))]
LIVING = [name for name in STEADY if name not in (*REJECTED, *WITHOUT_PODS)]
FULL = ("02-head-only",)
"""There is no group to scale."""
AT_ONCE = 8
"""Scenarios that run concurrently."""

SAME = (
    *("state", "desiredWorkerReplicas", "readyWorkerReplicas", "availableWorkerReplicas", "minWorkerReplicas"),
    *("maxWorkerReplicas", "desiredCPU", "desiredMemory", "desiredGPU", "desiredTPU", "stateTransitionTimes"),
)
"""What KubeRay had written and stays as it is."""
OURS = {
    "Unsupported": STEADY,
    "Invalid": tuple(REJECTED),
    "WorkersMissing": ("13-custom-resources",),
}
"""Conditions that KubeRay does not have, or had no reason for, and where they may be."""


@dataclass
class Taken:
    """One start before the operators were switched, and each time after that."""

    loaded: Loaded
    generation: int
    finalizers: list[str]
    before: dict[tuple[str, str], str]
    after: list[dict[tuple[str, str], str]] = field(default_factory=list)
    cluster: Json = field(default_factory=dict)
    """The RayCluster after our operator took it over."""

    def look(self) -> None:
        """Note what there is now."""
        self.after.append(stamps(self.loaded.children()))
        self.cluster = self.loaded.cluster()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=APIS)
async def taken(request, tmp_path_factory):
    cluster, folder, run = new_cluster(request), tmp_path_factory.mktemp("takeover"), secrets.token_hex(2)
    async with AsyncExitStack() as ending:
        await cluster.start()
        ending.push_async_callback(cluster.stop)
        node = cluster.add_node("takeover")
        found = [load(cluster, start, run, node) for start in starts()]
        taken = {each.start: _before(each) for each in found}
        kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig")
        operator = await take_over(kubeconfig, taken, cluster)
        if request.param == "kube" and (program := os.environ.get("KUBERAY")):
            await stop(operator)
            await Peer(program, kubeconfig, folder).take_over(cluster, len(found))
            for each in taken.values():
                each.look()
            operator = await take_over(kubeconfig, taken, cluster)
        ending.push_async_callback(stop, operator)
        yield taken


def _before(loaded: Loaded) -> Taken:
    metadata = loaded.cluster()["metadata"]
    return Taken(loaded, metadata["generation"], metadata.get("finalizers", []), stamps(loaded.children()))


async def take_over(kubeconfig, taken, cluster):
    """Our operator, once it has been through all clusters and has nothing left to do."""
    cluster.writes.clear()
    port = free_port()
    operator = await Operator(metrics=f"127.0.0.1:{port}").start(kubeconfig)
    await settled(port, OUR_PASSES, len(taken), cluster)
    for each in taken.values():
        each.look()
    return operator


async def stop(operator):
    code = await operator.stop()
    sys.stdout.write(operator.log)  # shown when a test of this file fails
    assert code == 0, operator.log
    assert "Traceback" not in operator.log


async def for_all(taken, chosen, scenario: Callable[[Taken], Awaitable[None]]) -> None:
    """Run the scenario of all these starts, several at once; the error names the failed one."""
    slots, errors = asyncio.Semaphore(AT_ONCE), {}

    async def log_progress(start: str) -> None:
        async with slots:
            try:
                await scenario(taken[start])
            except Exception as error:  # noqa: BLE001 - of each start, whatever it is
                errors[start] = f"{type(error).__name__}: {error}"

    await asyncio.gather(*map(log_progress, chosen))
    assert errors == {}


# --- switching ---------------------------------------------------------------------------------------------------------
@pytest.mark.rule("SC:S19", "FD:RC-B1", "FD:RC-B3")
@pytest.mark.parametrize("start", STEADY)
async def test_no_object_is_changed_and_no_object_is_added(taken, start):
    before, (ours, *others) = taken[start].before, taken[start].after
    assert ours == before
    for after in others:
        assert uids(after) == uids(before) if start in STAMPED_ANEW else after == before


def uids(stamped: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Which objects there are, without their versions."""
    return {key: stamp.partition(" ")[0] for key, stamp in stamped.items()}


@pytest.mark.rule("SC:S19")
@pytest.mark.parametrize("start", STEADY)
async def test_the_spec_is_not_written(taken, start):
    metadata = taken[start].cluster["metadata"]
    assert metadata["generation"] == taken[start].generation
    assert metadata.get("finalizers", []) == taken[start].finalizers


@pytest.mark.rule("SC:S19")
@pytest.mark.parametrize("start", STEADY)
async def test_the_status_stays_what_kuberay_wrote(taken, start):
    recorded, status = taken[start].loaded.recorded.get("status", {}), taken[start].cluster.get("status", {})
    assert {key: status.get(key) for key in SAME} == {key: recorded.get(key) for key in SAME}
    if start not in SERVICES_WITHOUT_OWNER:
        assert status.get("head", {}).keys() == recorded.get("head", {}).keys()
        assert status.get("head", {}).get("serviceName") == recorded.get("head", {}).get("serviceName")
    assert status.get("head", {}).get("podName") == recorded.get("head", {}).get("podName")
    conditions = {each["type"]: without_message(each) for each in status.get("conditions", ())}
    for each in recorded.get("conditions", ()):
        assert conditions.pop(each["type"]) == without_message(each)
    assert [kind for kind in conditions if start not in OURS.get(kind, ())] == []


def without_message(condition):
    return {key: value for key, value in condition.items() if key not in ("message", "observedGeneration")}


@pytest.mark.parametrize("start", NEEDS_NEW_SERVICES)
async def test_services_of_an_earlier_cluster_are_replaced(taken, start):
    loaded = taken[start].loaded
    uid = loaded.cluster()["metadata"]["uid"]

    def owners() -> list[str]:
        services = [obj for (kind, _), obj in loaded.children().items() if kind == "Service"]
        return [service["metadata"]["ownerReferences"][0]["uid"] for service in services]

    wanted = NEEDS_NEW_SERVICES[start]
    await until("the services are the cluster's own", lambda: owners() == [uid] * wanted, within_s=COLLECTED_S)
    pods = {key: stamp for key, stamp in taken[start].before.items() if key[0] == "Pod"}
    assert {key: stamp for key, stamp in taken[start].after[-1].items() if key[0] == "Pod"} == pods


async def test_of_two_heads_the_first_stays_and_keeps_its_uid(taken):
    before, loaded = taken[TWO_HEADS].before, taken[TWO_HEADS].loaded
    await until("one head is left", lambda: len(loaded.api.pods(loaded.namespace)) == 1)
    (head,) = loaded.pods().items()
    assert head[0] == loaded.recorded["status"]["head"]["podName"]
    assert before["Pod", head[0]].startswith(head[1])
    await until("it is recorded", lambda: constants.DELETED_HEAD_POD in loaded.api.events(loaded.namespace))


# --- after the takeover ------------------------------------------------------------------------------------------------
async def test_clusters_of_kuberay_scale_up_and_down(taken):
    """One worker more and one less: the workers that KubeRay created keep their uids."""
    await for_all(taken, [start for start in LIVING if start not in FULL], scale_up_and_down)


async def scale_up_and_down(taken: Taken) -> None:
    loaded, spec = taken.loaded, taken.loaded.cluster()["spec"]
    position = next(n for n, each in enumerate(spec["workerGroupSpecs"]) if can_grow(each, loaded))
    group, api, namespace = spec["workerGroupSpecs"][position], loaded.api, loaded.namespace
    hosts, before = group.get("numOfHosts", 1), loaded.pods()
    there = len(loaded.pods(group["groupName"])) // hosts
    api.scale(namespace, loaded.name, there + 1, group=position)
    await until("there is one more", lambda: len(loaded.pods()) == len(before) + hosts)
    assert before.items() <= loaded.pods().items()
    api.make_ready(namespace, taken_node(loaded))
    # Until then a worker of KubeRay that had no node is the pending one in the operator's cache, and goes first.
    await until(
        "the operator has seen them", lambda: loaded.status().get("readyWorkerReplicas", 0) == ready_workers(loaded)
    )
    victims = tuple(loaded.pods().keys() - before.keys()) if spec.get("enableInTreeAutoscaling") else ()
    api.scale(namespace, loaded.name, there, group=position, victims=victims)
    await until("the new one is gone", lambda: loaded.pods() == before)


def can_grow(group: Json, loaded: Loaded) -> bool:
    pods = loaded.pods(group["groupName"])
    return bool(pods) and not group.get("suspend") and len(pods) // group.get("numOfHosts", 1) < group["maxReplicas"]


def ready_workers(loaded: Loaded) -> int:
    """How many workers are Ready in the API."""
    workers = [
        pod
        for pod in loaded.api.pods(loaded.namespace)
        if pod["metadata"]["labels"][constants.GROUP_LABEL] != constants.HEAD_GROUP
    ]
    conditions = [each for pod in workers for each in pod.get("status", {}).get("conditions", ())]
    return sum(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def taken_node(loaded: Loaded) -> str:
    """Where the pods of KubeRay run."""
    pods = loaded.api.pods(loaded.namespace)
    return next(pod["spec"]["nodeName"] for pod in pods if not is_waiting("Pod", pod))


@pytest.mark.rule("FD:RC-B3")
async def test_rejected_clusters_get_no_pods(taken):
    """A user who requests more workers gets the reason for the rejection, and running pods stay unchanged."""
    await for_all(taken, REJECTED, ask_for_more)


async def ask_for_more(taken: Taken) -> None:
    loaded, before = taken.loaded, taken.loaded.pods()
    loaded.api.scale(loaded.namespace, loaded.name, 3)
    await until("it is recorded", lambda: constants.INVALID_SPEC in loaded.api.events(loaded.namespace))
    looking = has_reconciled(loaded.api, loaded.namespace, loaded.name)
    await holds_while("its pods stay", lambda: loaded.pods() == before, looking)


@pytest.mark.rule("FD:RC-B2")
async def test_the_next_head_finds_the_state_of_the_one_before(taken):
    """A lost head is replaced by one that uses the same namespace of the same Redis."""
    await for_all(taken, HELD_BY_A_FINALIZER, lose_the_head)


async def lose_the_head(taken: Taken) -> None:
    loaded = taken.loaded
    ((name, uid),) = loaded.pods(constants.HEAD_GROUP).items()
    before = storage_of(loaded.api.get("pods", loaded.namespace, name))
    loaded.api.set_pod_status(loaded.namespace, name, phase="Failed")
    await until("another head", lambda: uid not in (found := loaded.pods(constants.HEAD_GROUP).values()) and found)
    (after,) = loaded.pods(constants.HEAD_GROUP)
    assert storage_of(loaded.api.get("pods", loaded.namespace, after)) == before


def storage_of(head: Json) -> dict[str, Json]:
    """The variables with the storage of the GCS."""
    env = {each["name"]: each for each in head["spec"]["containers"][0]["env"]}
    return {name: env[name] for name in ("RAY_REDIS_ADDRESS", "RAY_external_storage_namespace")}


@pytest.mark.rule("FD:RC-B4", "FD:RC-B7")
async def test_clusters_of_kuberay_are_suspended_and_resumed(taken):
    """Also clusters with unsupported fields, and clusters that KubeRay had suspended."""
    await for_all(taken, [*WITHOUT_PODS, *LIVING], suspend_and_resume)


async def suspend_and_resume(taken: Taken) -> None:
    loaded, before = taken.loaded, taken.loaded.pods()
    set_suspend(loaded, value=True)
    await until("it is suspended", lambda: loaded.status().get("state") == "suspended")
    assert loaded.api.pods(loaded.namespace) == []
    set_suspend(loaded, value=False)
    await until("its pods are there again", lambda: len(loaded.pods()) >= max(1, len(before)))
    assert not before.items() & loaded.pods().items()


def set_suspend(loaded: Loaded, *, value: bool) -> None:
    loaded.api.edit(loaded.namespace, loaded.name, lambda obj: obj["spec"].update(suspend=value))


@pytest.mark.rule("FD:RC-B7")
async def test_what_kuberay_began_to_suspend_is_suspended_even_if_that_is_taken_back(taken):
    """KubeRay stored `RayClusterSuspending` and was switched off while pods were ending."""
    await for_all(taken, SUSPENDING, finish_suspending)


async def finish_suspending(taken: Taken) -> None:
    loaded = taken.loaded
    is_taken_back = loaded.start.startswith("07-")
    if is_taken_back:
        set_suspend(loaded, value=False)
    dying = loaded.api.pods(loaded.namespace)
    assert all("deletionTimestamp" in pod["metadata"] for pod in dying), "nothing is added to a suspension"
    release(loaded, dying)
    if is_taken_back:
        await until("its pods are there again", lambda: len(loaded.pods()) == len(dying))
        assert not {pod["metadata"]["uid"] for pod in dying} & set(loaded.pods().values())
    else:
        await until("it is suspended", lambda: loaded.status().get("state") == "suspended")
        assert loaded.api.pods(loaded.namespace) == []


def release(loaded: Loaded, pods: list[Json]) -> None:
    """What the recording held by a finalizer may end."""
    for pod in pods:
        loaded.api.edit(
            loaded.namespace, pod["metadata"]["name"], lambda obj: obj["metadata"].pop("finalizers"), "pods"
        )


@pytest.mark.rule("FD:RC-B1")
async def test_a_deletion_that_kuberay_began_ends_with_its_clean_up(taken):
    loaded = taken[DELETING].loaded
    assert not loaded.is_gone(), "as long as the clean-up runs"
    for pod in loaded.api.pods(loaded.namespace):  # a Job controller may have made one of its own
        loaded.api.set_pod_status(loaded.namespace, pod["metadata"]["name"], phase="Succeeded")
    await until("it is gone", loaded.is_gone)


@pytest.mark.rule("FD:RC-B1")
async def test_clusters_of_kuberay_are_deleted(taken):
    """All objects are deleted, including the RayCluster, and no finalizer of KubeRay blocks it."""
    await for_all(taken, [*STEADY, *SUSPENDING, TWO_HEADS, *NEEDS_NEW_SERVICES], delete)


def is_gone_after_its_cleanup(loaded: Loaded) -> bool:
    """There is no kubelet that runs the pod of its clean-up Job."""
    for pod in loaded.api.pods(loaded.namespace):
        labels, phase = pod["metadata"].get("labels", {}), pod.get("status", {}).get("phase")
        if labels.get("ray.io/node-type") == "redis-cleanup" and phase != "Succeeded":
            loaded.api.set_pod_status(loaded.namespace, pod["metadata"]["name"], phase="Succeeded")
    return loaded.is_gone()


async def delete(taken: Taken) -> None:
    loaded = taken.loaded
    loaded.api.delete(loaded.namespace, loaded.name)
    release(loaded, [pod for pod in loaded.api.pods(loaded.namespace) if pod["metadata"].get("finalizers")])
    await until("it is gone", partial(is_gone_after_its_cleanup, loaded))
    owned = [key for key in taken.before if key[0] == "Pod"]
    await until("its pods are gone", lambda: not loaded.children().keys() & owned, within_s=COLLECTED_S)
