"""What do other people's hands do to a RayCluster, and to what belongs to it?

Edits by others than its user, its autoscaler and the operator, as `kubectl edit`, other controllers, policy engines and
restored backups make them (RM:F12): labels and owners taken from pods, finalizers laid on them, services and roles deleted
or emptied, a status overwritten, annotations gone. Each function changes the store at once and nothing else. The histories
draw from them, and `FOREIGN` are lives of them on which every fault is tried.
"""

from contextlib import suppress
from typing import Any

from raytide_sandbox.apiserver.store import ApiStatusError

from simulation.manifests import NAME, NEIGHBOUR, find, group, new_cluster, stranger
from simulation.scenarios import Scenario, edit, live_cluster, workers
from simulation.stage import Stage
from simulation.world import NAMESPACE, RAYCLUSTERS, World

HOLD = "example.com/hold"
HELD_S = 20.0
FORGED = {"state": "failed", "desiredWorkerReplicas": 7, "reason": "written by others"}
LABELS = ("ray.io/cluster", "ray.io/node-type", "ray.io/group")
HEAD_SERVICE = f"{NAME}-head-svc"


def unlabel(world: World, pod: str, label: str) -> None:
    """A pod is taken out of the selectors, so that somebody can look at it in peace."""
    world.edit("pods", pod, None, lambda obj: obj["metadata"]["labels"].pop(label, None))


def orphan(world: World, pod: str) -> None:
    """As after a restored backup, or `kubectl delete --cascade=orphan` of an earlier owner."""
    world.edit("pods", pod, None, lambda obj: obj["metadata"].pop("ownerReferences", None))


def give_away(world: World, pod: str, kind: str, name: str) -> None:
    """Another controller adopts a pod for the object of that kind and name."""
    entry = world.store.find(kind, NAMESPACE, name)
    assert entry is not None, name
    owner = {field: entry.obj()[field] for field in ("apiVersion", "kind")}
    owner |= {"name": name, "uid": entry.uid, "controller": True}
    world.edit("pods", pod, None, lambda obj: obj["metadata"].update(ownerReferences=[owner]))


def hold(world: World, pod: str) -> None:
    """A finalizer of others: the pod ends when they say so."""
    world.edit("pods", pod, None, lambda obj: obj["metadata"].update(finalizers=[HOLD]))


def let_go(world: World) -> None:
    """They say so, of every pod."""
    for key, entry in list(world.store.entries("pods", NAMESPACE)):
        if HOLD in (entry.obj()["metadata"].get("finalizers") or ()):
            world.edit("pods", key.name, None, lambda obj: obj["metadata"].update(finalizers=[]))


def end_gently(world: World, pod: str) -> None:
    """As `kubectl delete pod`, with its grace period."""
    world.store.delete("pods", NAMESPACE, pod)


def strip(world: World, kind: str, name: str) -> None:
    """All annotations go: somebody replaced the object by what stands in a file."""
    world.edit(kind, name, None, lambda obj: obj["metadata"].pop("annotations", None))


def overwrite_status(stage: Stage, status: dict[str, Any]) -> None:
    """Somebody writes the cluster's status, all of it."""
    with stage.judge.overlooking_statuses():
        stage.world.edit(RAYCLUSTERS, NAME, None, lambda obj: obj.update(status=status), subresource="status")


def _labels_gone(stage: Stage, pod: str) -> None:
    unlabel(stage.world, pod, stage.rng.choice(LABELS))


def _owner_gone(stage: Stage, pod: str) -> None:
    orphan(stage.world, pod)


def _adopted(stage: Stage, pod: str) -> None:
    give_away(stage.world, pod, *stage.rng.choice(((RAYCLUSTERS, NEIGHBOUR), ("pods", "stranger"))))


def _held(stage: Stage, pod: str) -> None:
    hold(stage.world, pod)


def _all_let_go(stage: Stage, _pod: str) -> None:
    let_go(stage.world)


def _ended(stage: Stage, pod: str) -> None:
    end_gently(stage.world, pod)


def _service_gone(stage: Stage, _pod: str) -> None:
    with suppress(ApiStatusError):
        stage.world.store.delete("services", NAMESPACE, HEAD_SERVICE)


def _status_gone(stage: Stage, _pod: str) -> None:
    overwrite_status(stage, stage.rng.choice(({}, FORGED)))


def _annotations_gone(stage: Stage, pod: str) -> None:
    strip(stage.world, "pods", pod)
    strip(stage.world, RAYCLUSTERS, NAME)


HANDS = (
    _labels_gone,
    _owner_gone,
    _adopted,
    _held,
    _all_let_go,
    _ended,
    _service_gone,
    _status_gone,
    _annotations_gone,
)
"""What the histories draw from: each takes the stage and the name of a pod of the cluster."""

# --- the lives -----------------------------------------------------------------------------------------------------------


async def released(stage: Stage) -> None:
    """Each of three workers loses another label; all three are replaced, and a later order finds the right number."""
    await live_cluster(stage, group("a", 4))
    for pod, label in zip(workers(stage, "a"), LABELS, strict=False):
        unlabel(stage.world, pod, label)
    await stage.settle()
    edit(stage, lambda spec: find(spec, "a").update(replicas=2))
    await stage.settle()


async def orphaned(stage: Stage) -> None:
    """A worker without an owner, one that a neighbour adopted and one of another kind's owner are not ours to delete."""
    stage.world.create(new_cluster([group("a", 1)], NEIGHBOUR))
    stage.world.create(stranger())
    await live_cluster(stage, group("a", 4))
    first, second, third, _ = taken = workers(stage, "a")
    orphan(stage.world, first)
    give_away(stage.world, second, RAYCLUSTERS, NEIGHBOUR)
    give_away(stage.world, third, "pods", "stranger")
    await stage.settle()
    edit(stage, lambda spec: find(spec, "a").update(replicas=1, scaleStrategy={"workersToDelete": [first, second]}))
    await stage.settle()
    if gone := [pod for pod in taken[:3] if stage.world.store.find("pods", NAMESPACE, pod) is None]:
        stage.judge.note(f"pods of others are gone: {gone}")


async def held(stage: Stage) -> None:
    """Finalizers of others keep two workers that end, one by an order and one by `kubectl delete`: both count until then."""
    await live_cluster(stage, group("a", 4))
    named, ended, *_ = workers(stage, "a")
    for pod in (named, ended):
        hold(stage.world, pod)
    edit(stage, lambda spec: find(spec, "a").update(replicas=3, scaleStrategy={"workersToDelete": [named]}))
    end_gently(stage.world, ended)
    await stage.pass_time(HELD_S)
    if not stage.script.met and (alive := len(workers(stage, "a"))) != 2:
        stage.judge.note(f"{alive} live workers beside two that are held")
    let_go(stage.world)
    stage.trouble_until = stage.loop.time()
    await stage.settle()


async def head_orphaned(stage: Stage) -> None:
    """The head loses its owner: it is a stranger from then on, and the cluster gets another head."""
    await live_cluster(stage, group("a", 2))
    orphan(stage.world, workers(stage, "headgroup")[0])
    await stage.settle()


async def services_taken(stage: Stage) -> None:
    """The head service is deleted, given away, and stripped of its labels, each when all was well again."""
    await live_cluster(stage, group("a", 2))
    stage.world.store.delete("services", NAMESPACE, HEAD_SERVICE)
    await stage.settle()
    strip(stage.world, "services", HEAD_SERVICE)
    stage.world.edit("services", HEAD_SERVICE, None, lambda obj: obj["metadata"].pop("labels", None))
    await stage.pass_time(60.0)
    await stage.settle()


async def status_overwritten(stage: Stage) -> None:
    """The status is wiped, then forged; the truth stands there again both times, and no pod is touched for it."""
    await live_cluster(stage, group("a", 3))
    for lie in ({}, FORGED):
        overwrite_status(stage, lie)
        await stage.pass_time(5.0)
        await stage.settle()
        told = (stage.world.cluster(NAME) or {}).get("status") or {}
        if not stage.script.met and (told.get("state"), told.get("observedGeneration")) != ("ready", 1):
            stage.judge.note(f"after {lie} was written the status says {told}")


async def annotations_gone(stage: Stage) -> None:
    """Of the cluster and of all its pods; nothing depends on them but what they say."""
    await live_cluster(stage, group("a", 3))
    strip(stage.world, RAYCLUSTERS, NAME)
    for pod in (*workers(stage, "headgroup"), *workers(stage, "a")):
        strip(stage.world, "pods", pod)
    await stage.pass_time(5.0)
    await stage.settle()
    edit(stage, lambda spec: find(spec, "a").update(replicas=4))
    await stage.settle()


FOREIGN = (
    Scenario("foreign-released", released),
    Scenario("foreign-orphaned", orphaned),
    Scenario("foreign-held", held),
    Scenario("foreign-head-orphaned", head_orphaned),
    Scenario("foreign-services-taken", services_taken),
    Scenario("foreign-status-overwritten", status_overwritten),
    Scenario("foreign-annotations-gone", annotations_gone),
)
"""Each with every fault at every point."""
