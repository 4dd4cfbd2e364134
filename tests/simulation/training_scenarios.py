"""Which lives of TrainingJobs is every fault tried on?

As scenarios.py does for RayClusters: a prelude without faults, a moment from which calls and watch lines are counted, and
what users, trainers and machines do then. The cluster has three machines of 4 CPUs, two of them with 4 GPUs; each story ends
in sizes that follow from the rules of fair sharing by hand, whatever went wrong on the way (RM §2.3 S13; TJ §4).
"""

from collections.abc import Awaitable, Callable
from typing import Any

from raytide.api import trainingjob_constants as constants
from raytide_sandbox.apiserver.request_response import Request
from raytide_sandbox.faults.types import Answer

from simulation.scenarios import Scenario
from simulation.stage import Stage
from simulation.training_manifests import OTHER_NAMESPACE, new_job, new_pod, role
from simulation.training_stage import FreePlacesStage, TrainingStage
from simulation.training_wishes import condition
from simulation.training_world import JOBS
from simulation.world import NAMESPACE

QUOTA_S = 20.0
PENDING_TIMEOUT_S = 45
LONGEST_BLIND_S = 100.0
"""Whoever may not read nodes notices within 30 s, and so again when they may be read; faults come on top."""


async def live(stage: TrainingStage, *jobs: dict[str, Any]) -> None:
    """The prelude of most: jobs that have been well for a while, one after the other."""
    stage.start()
    await stage.pass_time(2.0)
    for job in jobs:
        stage.world.create(job)
        await stage.settle()
    await stage.pass_time(10.0)
    stage.begin()


def expect(stage: TrainingStage, **sizes: int) -> None:
    """These are the sizes that follow from the rules."""
    if (found := stage.sizes()) != sizes:
        stage.judge.note(f"sizes {found}, by the rules {sizes}")


def edit(stage: TrainingStage, name: str, change: Callable[[dict[str, Any]], Any], namespace: str = NAMESPACE) -> None:
    """A user edits the spec."""
    stage.world.edit_job(name, namespace, lambda obj: change(obj["spec"]))


async def until(stage: TrainingStage, is_so: Callable[[], bool], within_s: float) -> bool:
    """Whether it comes true in time."""
    waited_s = 0.0
    while not is_so() and waited_s < within_s:
        await stage.pass_time(1.0)
        waited_s += 1.0
    return is_so()


async def until_it_says(stage: TrainingStage, name: str, reason: str, within_s: float | None = None) -> None:
    """The sharing pass says why the job waits, if not at once (its pods may say something before it)."""

    def said() -> Any:
        return condition(stage.world.job(name, NAMESPACE) or {}, constants.WAITING).get("reason")

    if not await until(stage, lambda: said() == reason, within_s or stage.esr_s):
        stage.judge.note(f"{name} should say {reason}, and says {said()}")


def uid_of(stage: TrainingStage, name: str, namespace: str = NAMESPACE) -> str:
    """Of the job of that name."""
    job = stage.world.job(name, namespace)
    assert job is not None
    uid: str = job["metadata"]["uid"]
    return uid


# --- the lives -----------------------------------------------------------------------------------------------------------


async def grow_alone(stage: TrainingStage) -> None:
    """A job with a master and parameter servers starts in order and grows to its maximum."""
    stage.start()
    await stage.pass_time(2.0)
    stage.begin()
    others = {"pserver": {"min-instance": 1, **role("1")}, "master": role("1")}
    stage.world.create(new_job("a", 2, 6, **others))
    await stage.settle()
    expect(stage, a=6)


async def meet(stage: TrainingStage) -> None:
    """The first has all it may have; the second comes, gets its minimum, and both meet in the middle."""
    scaling = {"rebalance": True, "growCooldownSeconds": 2, "shrinkCooldownSeconds": 2}
    await live(stage, new_job("a", 4, 8, scaling=scaling))
    expect(stage, a=8)
    stage.world.create(new_job("b", 4, 8, namespace=OTHER_NAMESPACE, scaling=scaling))
    await stage.settle(within_s=150.0)
    expect(stage, a=6, b=6)


async def gang_reclaims(stage: TrainingStage) -> None:
    """A gang with GPUs comes; the donor with GPUs gives exactly what it needs, the one without gives nothing."""
    await live(stage, new_job("g", 2, 8, gpu=1, cpu="500m"), new_job("c", 1, 4))
    expect(stage, g=8, c=4)
    stage.world.create(new_job("d", 3, 3, gpu=1, cpu="500m"))
    await stage.settle()
    expect(stage, g=5, c=4, d=3)


async def one_node_released(stage: TrainingStage) -> None:
    """A trainer as large as a machine comes: the four trainers of one machine leave for it, and no others.

    By index nine of them left, and five came again (FD:SH-B3).
    """
    await live(stage, new_job("a", 2, 12))
    expect(stage, a=12)
    before = set(stage.census.live_in(uid_of(stage, "a"), constants.TRAINER))
    stage.world.create(new_job("d", 1, 1, cpu="4", startPolicy="Gang"))
    await stage.settle()
    expect(stage, a=8, d=1)
    staying = before.intersection(stage.census.live_in(uid_of(stage, "a"), constants.TRAINER))
    if len(staying) != 8:
        stage.judge.note(f"{len(before) - len(staying)} of {len(before)} trainers were removed, 4 by the rules")


async def one_ends(stage: TrainingStage) -> None:
    """All data of one job has been gone through: it ends, and the other takes the room."""
    await live(stage, new_job("a", 4, 10), new_job("b", 3, 12))
    sizes = stage.sizes()
    if sum(sizes.values()) != 12:
        stage.judge.note(f"the cluster is not full: {sizes}")
    stage.world.finish(uid_of(stage, "a"))
    await stage.settle()
    expect(stage, a=0, b=12)


async def bounds_edited(stage: TrainingStage) -> None:
    """The maximum falls below what runs, later the minimum rises above it."""
    await live(stage, new_job("a", 2, 8))
    edit(stage, "a", lambda spec: spec["trainer"].update({"max-instance": 3}))
    await stage.settle()
    expect(stage, a=3)
    edit(stage, "a", lambda spec: spec["trainer"].update({"min-instance": 5, "max-instance": 5}))
    await stage.settle()
    expect(stage, a=5)


async def shrunk_without_zero(stage: TrainingStage) -> None:
    """The maximum falls and trainer 0 is lost at once: it is made anew, and one more goes for it."""
    await live(stage, new_job("a", 2, 6))
    stage.world.vanish_from("a-trainer-0", NAMESPACE)
    edit(stage, "a", lambda spec: spec["trainer"].update({"max-instance": 4}))
    await stage.settle()
    expect(stage, a=4)


async def scaled_by_hand(stage: TrainingStage) -> None:
    """`kubectl scale` is obeyed at once, and sharing goes on after the cooldown."""
    await live(stage, new_job("a", 2, 8, scaling={"growCooldownSeconds": 20}))
    stage.world.scale("a", NAMESPACE, 4)
    await stage.pass_time(12.0)
    if not stage.script.met and stage.sizes()["a"] != 4:
        stage.judge.note(f"scaled to 4 by hand, and there are {stage.sizes()}")
    await stage.settle()
    expect(stage, a=8)


async def suspended(stage: TrainingStage) -> None:
    """A job is suspended while it shrinks for another one, and goes on later, with a maximum that has room by then."""
    await live(stage, new_job("a", 2, 12))
    stage.world.create(new_job("b", 4, 4))
    await stage.pass_time(1.5)
    edit(stage, "a", lambda spec: spec.update(suspend=True))
    await stage.settle()
    expect(stage, a=0, b=4)
    edit(stage, "a", lambda spec: spec["trainer"].update({"max-instance": 8}))
    edit(stage, "a", lambda spec: spec.update(suspend=False))
    await stage.settle()
    expect(stage, a=8, b=4)


async def node_lost(stage: TrainingStage) -> None:
    """A machine dies during a pass, its Node is deleted, and another one comes."""
    await live(stage, new_job("a", 2, 12))
    stage.world.create(new_job("b", 2, 2))
    await stage.pass_time(1.0)
    stage.world.lose_node("node-2")
    await stage.pass_time(15.0)
    stage.world.bury_node("node-2")
    await stage.pass_time(10.0)
    stage.world.bring_node("node-2")
    await stage.settle()
    expect(stage, a=10, b=2)


async def cordoned(stage: TrainingStage) -> None:
    """A machine is cordoned while there is room on it: nobody grows into it until it is back."""
    await live(stage, new_job("a", 1, 4))
    stage.world.cordon("node-2")
    edit(stage, "a", lambda spec: spec["trainer"].update({"max-instance": 12}))
    await stage.pass_time(20.0)
    stage.world.cordon("node-2", is_cordoned=False)
    await stage.settle()
    expect(stage, a=12)


async def trainers_fail(stage: TrainingStage) -> None:
    """Two trainers fail, one is evicted: all are made anew, after a pause."""
    await live(stage, new_job("a", 4, 4))
    for name in ("a-trainer-1", "a-trainer-3"):
        stage.world.fail(name, NAMESPACE)
    await stage.settle()
    stage.world.evict_from("a-trainer-0", NAMESPACE)
    await stage.settle()
    expect(stage, a=4)


async def deleted_while_creating(stage: TrainingStage) -> None:
    """The user changes their mind after the first writes."""
    stage.start()
    await stage.pass_time(2.0)
    stage.begin()
    stage.world.create(new_job("a", 5, 5))
    await stage.pass_time(0.05)
    stage.world.delete(JOBS, "a", NAMESPACE)
    await stage.settle()


async def made_again(stage: TrainingStage) -> None:
    """The same name at once for another job, while the first one's pods are still going."""
    await live(stage, new_job("a", 3, 3))
    stage.world.delete(JOBS, "a", NAMESPACE)
    stage.world.create(new_job("a", 2, 2))
    await stage.settle()
    expect(stage, a=2)


async def impossible(stage: TrainingStage) -> None:
    """A job that no machine can ever hold, and a stranger of that kind: nobody is drained for them."""
    await live(stage, new_job("a", 2, 12))
    stage.world.create(new_job("x", 2, 2, cpu="9"))
    stage.world.create(new_pod("giant", "1000"))
    await stage.settle()
    expect(stage, a=12, x=2)
    await until_it_says(stage, "x", "Unsatisfiable")


async def impossible_gang(stage: TrainingStage) -> None:
    """A gang that no machine can ever hold comes while nodes may not be read: it is let in, and gives its room back."""
    await live(stage, new_job("a", 2, 8))
    is_blind, trust = [True], stage.judge.is_view_trusted

    def no_nodes(request: Request) -> Answer | None:
        is_hidden = is_blind[0] and request.method == "GET" and request.path.endswith("/nodes")
        return Answer(403, message="nodes is forbidden") if is_hidden else None

    stage.wire.admission = no_nodes
    stage.judge.is_view_trusted = False
    stage.world.create(new_job("x", 2, 2, gpu=5, pendingTimeoutSeconds=PENDING_TIMEOUT_S, startPolicy="Gang"))
    if not await until(stage, lambda: stage.sizes()["x"] == 2, LONGEST_BLIND_S):
        stage.judge.note(f"where room is not known every gang begins, and there are {stage.sizes()}")
    is_blind[0] = False
    stage.trouble_until = stage.loop.time()
    if not await until(stage, lambda: stage.sizes()["x"] == 0, PENDING_TIMEOUT_S + LONGEST_BLIND_S):
        stage.judge.note(f"it has not given its room back: {stage.sizes()}")
    stage.judge.is_view_trusted = trust
    await until_it_says(stage, "x", constants.GANG_TIMEOUT)
    await until_it_says(stage, "x", "Unsatisfiable", within_s=2 * LONGEST_BLIND_S)
    await stage.settle()
    expect(stage, a=8, x=0)


async def quota(stage: TrainingStage) -> None:
    """F11: admission denies the third trainer of one job for a while; the other one gets all of its own (RM:I18)."""
    stage.start()
    await stage.pass_time(2.0)
    stage.begin()
    until_s = stage.loop.time() + QUOTA_S

    def two_of_a(request: Request) -> Answer | None:
        is_trainer_of_a = request.method == "POST" and b'"paddle-job":"a"' in request.body
        if is_trainer_of_a and stage.sizes().get("a", 0) >= 2 and stage.loop.time() < until_s:
            return Answer(403, message="exceeded quota: two trainers of a")
        return None

    stage.wire.admission = two_of_a
    stage.world.create(new_job("a", 4, 4))
    stage.world.create(new_job("b", 2, 2))
    await stage.pass_time(QUOTA_S - 1.0)
    waiting = condition(stage.world.job("a", NAMESPACE) or {}, constants.WAITING)
    if not stage.script.met and (stage.sizes() != {"a": 2, "b": 2} or waiting.get("status") != "True"):
        stage.judge.note(f"under a quota of two: {stage.sizes()}, {waiting}")
    stage.trouble_until = until_s
    await stage.settle()
    expect(stage, a=4, b=2)


async def strangers(stage: TrainingStage) -> None:
    """Pods of others come into free room and go; the job grows around them and never touches them."""
    await live(stage, new_job("a", 2, 12), new_job("b", 1, 1))
    for number in range(3):
        stage.world.create(new_pod(f"web-{number}", "1", job="a"))
    stage.world.delete(JOBS, "b", NAMESPACE)
    await stage.settle()
    for number in range(3):
        stage.world.vanish_from(f"web-{number}", NAMESPACE)
    await stage.settle()
    expect(stage, a=12)


async def foreign_hands(stage: TrainingStage) -> None:
    """F12: somebody takes away the service and the list of members, later wipes the record and the status."""
    await live(stage, new_job("a", 2, 6))
    stage.world.delete("services", "a", NAMESPACE)
    stage.world.delete("configmaps", "a-membership", NAMESPACE)
    await stage.settle()
    stage.world.edit_job("a", NAMESPACE, lambda obj: obj["metadata"].pop("annotations", None))
    stage.world.edit(JOBS, "a", None, lambda obj: obj.update(status={}), subresource="status")
    await stage.pass_time(3.0)
    await stage.settle()
    expect(stage, a=6)


async def upgrade(stage: TrainingStage) -> None:
    """RM:S14: SIGTERM, and a new operator takes over jobs that are well: it has nothing to write (RM:I19)."""
    await live(stage, new_job("a", 2, 8), new_job("b", 2, 2, gpu=1))
    await stage.operator.stop()
    stage.operator.start()
    await stage.pass_time(60.0)


def _story(
    name: str,
    tell: Callable[[TrainingStage], Awaitable[None]],
    *,
    is_exact: bool = False,
    is_quiet: bool = False,
    stage: type[TrainingStage] = TrainingStage,
) -> Scenario:
    async def told(on: Stage) -> None:
        assert isinstance(on, TrainingStage)
        await tell(on)

    return Scenario(name, told, has_exact_counts=is_exact, is_quiet=is_quiet, stage=stage)


TRAINING = (
    _story("job-grows-alone", grow_alone, is_exact=True),
    _story("jobs-meet", meet),
    _story("gang-reclaims", gang_reclaims),
    _story("one-node-released", one_node_released),
    _story("job-ends", one_ends),
    _story("bounds-edited", bounds_edited),
    _story("shrunk-without-zero", shrunk_without_zero),
    _story("scaled-by-hand", scaled_by_hand),
    _story("suspended-while-shrinking", suspended),
    _story("job-node-lost", node_lost, stage=FreePlacesStage),
    _story("job-node-cordoned", cordoned),
    _story("trainers-fail", trainers_fail, is_exact=True),
    _story("job-deleted-while-creating", deleted_while_creating),
    _story("job-made-again", made_again),
    _story("impossible-job", impossible),
    _story("impossible-gang-unseen", impossible_gang),
    _story("job-under-quota", quota),
    _story("strangers-come-and-go", strangers),
    _story("foreign-hands", foreign_hands),
    _story("job-upgrade", upgrade, is_exact=True, is_quiet=True),
)
"""Each with every fault at every point."""
