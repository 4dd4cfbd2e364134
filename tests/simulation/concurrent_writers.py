"""Edits of a RayCluster and its objects by concurrent writers, and scenarios of them on which each fault is tried.

Concurrent writers are all but the user, the autoscaler and the operator: `kubectl edit`, other controllers, policy engines
and restored backups (RM:F12). They remove labels and owners of pods, add finalizers, delete or empty services and RBAC
objects, overwrite the status and remove annotations. Each function changes the store at once and nothing else. Histories
draw from `CONCURRENT_EDITS`.
"""

from contextlib import suppress
from typing import Any

from raytide_sandbox.apiserver.store import ApiStatusError

from simulation.environment import Environment
from simulation.manifests import EXTERNAL_POD, NAME, OTHER_NAME, find, group, new_cluster, unowned_pod
from simulation.scenarios import Scenario, edit, live_cluster, workers
from simulation.simulated_kube import NAMESPACE, RAYCLUSTERS, SimulatedKube

FINALIZER = "example.com/hold"
HELD_S = 20.0
FORGED = {"state": "failed", "desiredWorkerReplicas": 7, "reason": "written by others"}
LABELS = ("ray.io/cluster", "ray.io/node-type", "ray.io/group")
HEAD_SERVICE = f"{NAME}-head-svc"


def remove_label(kube: SimulatedKube, pod: str, label: str) -> None:
    """Remove a label, so that no selector matches the pod, as for debugging."""
    kube.edit("pods", pod, None, lambda obj: obj["metadata"]["labels"].pop(label, None))


def remove_owner(kube: SimulatedKube, pod: str) -> None:
    """Remove the owner, as a restored backup or `kubectl delete --cascade=orphan` of an earlier owner does."""
    kube.edit("pods", pod, None, lambda obj: obj["metadata"].pop("ownerReferences", None))


def change_owner(kube: SimulatedKube, pod: str, kind: str, name: str) -> None:
    """Replace the owner, as a controller that adopts the pod for the object of that kind and name."""
    entry = kube.store.find(kind, NAMESPACE, name)
    assert entry is not None, name
    owner = {field: entry.obj()[field] for field in ("apiVersion", "kind")}
    owner |= {"name": name, "uid": entry.uid, "controller": True}
    kube.edit("pods", pod, None, lambda obj: obj["metadata"].update(ownerReferences=[owner]))


def add_finalizer(kube: SimulatedKube, pod: str) -> None:
    """Add the finalizer of another controller, which keeps a deleted pod."""
    kube.edit("pods", pod, None, lambda obj: obj["metadata"].update(finalizers=[FINALIZER]))


def remove_finalizers(kube: SimulatedKube) -> None:
    """Remove that finalizer from every pod."""
    for key, entry in list(kube.store.entries("pods", NAMESPACE)):
        if FINALIZER in (entry.obj()["metadata"].get("finalizers") or ()):
            kube.edit("pods", key.name, None, lambda obj: obj["metadata"].update(finalizers=[]))


def delete_pod(kube: SimulatedKube, pod: str) -> None:
    """As `kubectl delete pod`, with its grace period."""
    kube.store.delete("pods", NAMESPACE, pod)


def remove_annotations(kube: SimulatedKube, kind: str, name: str) -> None:
    """Remove all annotations, as `kubectl replace` with a manifest does."""
    kube.edit(kind, name, None, lambda obj: obj["metadata"].pop("annotations", None))


def overwrite_status(env: Environment, status: dict[str, Any]) -> None:
    """Overwrite the whole status of the cluster."""
    with env.checks.ignoring_status_writes():
        env.kube.edit(RAYCLUSTERS, NAME, None, lambda obj: obj.update(status=status), subresource="status")


def _remove_label(env: Environment, pod: str) -> None:
    remove_label(env.kube, pod, env.rng.choice(LABELS))


def _remove_owner(env: Environment, pod: str) -> None:
    remove_owner(env.kube, pod)


def _change_owner(env: Environment, pod: str) -> None:
    change_owner(env.kube, pod, *env.rng.choice(((RAYCLUSTERS, OTHER_NAME), ("pods", EXTERNAL_POD))))


def _add_finalizer(env: Environment, pod: str) -> None:
    add_finalizer(env.kube, pod)


def _remove_finalizers(env: Environment, _pod: str) -> None:
    remove_finalizers(env.kube)


def _delete_pod(env: Environment, pod: str) -> None:
    delete_pod(env.kube, pod)


def _delete_service(env: Environment, _pod: str) -> None:
    with suppress(ApiStatusError):
        env.kube.store.delete("services", NAMESPACE, HEAD_SERVICE)


def _overwrite_status(env: Environment, _pod: str) -> None:
    overwrite_status(env, env.rng.choice(({}, FORGED)))


def _remove_annotations(env: Environment, pod: str) -> None:
    remove_annotations(env.kube, "pods", pod)
    remove_annotations(env.kube, RAYCLUSTERS, NAME)


CONCURRENT_EDITS = (
    _remove_label,
    _remove_owner,
    _change_owner,
    _add_finalizer,
    _remove_finalizers,
    _delete_pod,
    _delete_service,
    _overwrite_status,
    _remove_annotations,
)
"""Edits that histories draw from: each has the environment and the name of a pod of the cluster as arguments."""

# --- scenarios-----------------------------------------------------------------------------------------------------------


async def labels_removed(env: Environment) -> None:
    """Each of three workers loses another label; all three are replaced, and a later scale-down deletes the right number."""
    await live_cluster(env, group("a", 4))
    for pod, label in zip(workers(env, "a"), LABELS, strict=False):
        remove_label(env.kube, pod, label)
    await env.settle()
    edit(env, lambda spec: find(spec, "a").update(replicas=2))
    await env.settle()


async def owners_changed(env: Environment) -> None:
    """A worker without an owner, one adopted by another RayCluster and one owned by another kind are not deleted."""
    env.kube.create(new_cluster([group("a", 1)], OTHER_NAME))
    env.kube.create(unowned_pod())
    await live_cluster(env, group("a", 4))
    first, second, third, _ = before = workers(env, "a")
    remove_owner(env.kube, first)
    change_owner(env.kube, second, RAYCLUSTERS, OTHER_NAME)
    change_owner(env.kube, third, "pods", EXTERNAL_POD)
    await env.settle()
    edit(env, lambda spec: find(spec, "a").update(replicas=1, scaleStrategy={"workersToDelete": [first, second]}))
    await env.settle()
    if missing := [pod for pod in before[:3] if env.kube.store.find("pods", NAMESPACE, pod) is None]:
        env.checks.add_violation(f"pods of other owners were deleted: {missing}")


async def finalizers_added(env: Environment) -> None:
    """Finalizers keep two terminating workers, one named in workersToDelete and one deleted by `kubectl delete`: both count."""
    await live_cluster(env, group("a", 4))
    named, ended, *_ = workers(env, "a")
    for pod in (named, ended):
        add_finalizer(env.kube, pod)
    edit(env, lambda spec: find(spec, "a").update(replicas=3, scaleStrategy={"workersToDelete": [named]}))
    delete_pod(env.kube, ended)
    await env.pass_time(HELD_S)
    if not env.script.met and (alive := len(workers(env, "a"))) != 2:
        env.checks.add_violation(f"{alive} live workers besides two with finalizers")
    remove_finalizers(env.kube)
    env.disturbed_until_s = env.loop.time()
    await env.settle()


async def head_owner_removed(env: Environment) -> None:
    """The head loses its owner: there is no second head beside it, until it loses the label of the cluster too (FD:PS3-1)."""
    await live_cluster(env, group("a", 2))
    (head,) = workers(env, "headgroup")
    remove_owner(env.kube, head)
    await env.pass_time(HELD_S)
    if others := workers(env, "headgroup"):
        env.checks.add_violation(f"{others} beside a head without an owner")
    remove_label(env.kube, head, LABELS[0])
    env.disturbed_until_s = env.loop.time()
    await env.settle()


async def services_deleted(env: Environment) -> None:
    """The head service is deleted, later its annotations and labels are removed."""
    await live_cluster(env, group("a", 2))
    env.kube.store.delete("services", NAMESPACE, HEAD_SERVICE)
    await env.settle()
    remove_annotations(env.kube, "services", HEAD_SERVICE)
    env.kube.edit("services", HEAD_SERVICE, None, lambda obj: obj["metadata"].pop("labels", None))
    await env.pass_time(60.0)
    await env.settle()


async def status_overwritten(env: Environment) -> None:
    """The status is cleared, then forged; the operator restores it both times and touches no pod."""
    await live_cluster(env, group("a", 3))
    for status_written in ({}, FORGED):
        overwrite_status(env, status_written)
        await env.pass_time(5.0)
        await env.settle()
        status = (env.kube.cluster(NAME) or {}).get("status") or {}
        if not env.script.met and (status.get("state"), status.get("observedGeneration")) != ("ready", 1):
            env.checks.add_violation(f"after {status_written} was written the status is {status}")


async def annotations_removed(env: Environment) -> None:
    """The annotations of the cluster and all of its pods are removed; no decision depends on them."""
    await live_cluster(env, group("a", 3))
    remove_annotations(env.kube, RAYCLUSTERS, NAME)
    for pod in (*workers(env, "headgroup"), *workers(env, "a")):
        remove_annotations(env.kube, "pods", pod)
    await env.pass_time(5.0)
    await env.settle()
    edit(env, lambda spec: find(spec, "a").update(replicas=4))
    await env.settle()


CONCURRENT_WRITERS = (
    Scenario("foreign-released", labels_removed),
    Scenario("foreign-orphaned", owners_changed),
    Scenario("foreign-held", finalizers_added),
    Scenario("foreign-head-orphaned", head_owner_removed),
    Scenario("foreign-services-taken", services_deleted),
    Scenario("foreign-status-overwritten", status_overwritten),
    Scenario("foreign-annotations-gone", annotations_removed),
)
"""Each fault is tried at every point of these."""
