"""Scenarios of TrainingJobs on which each fault is tried.

Like scenarios.py: a setup without faults, a moment from which calls and watch events are numbered, then actions of users,
trainers and nodes. The cluster has three nodes of 4 CPUs, two of them with 4 GPUs; each scenario ends in sizes that were
computed by hand from the rules of fair sharing, at any fault (RM §2.3 S13; TJ §4).
"""

from collections.abc import Awaitable, Callable
from typing import Any

from raytide.api import trainingjob_constants as constants
from raytide_sandbox.apiserver.request_response import Request
from support.faults.types import Answer

from simulation.environment import Environment
from simulation.scenarios import Scenario
from simulation.simulated_kube import NAMESPACE
from simulation.training_desired_state import condition
from simulation.training_environment import AnyIndexEnvironment, TrainingEnvironment
from simulation.training_kube import JOBS
from simulation.training_manifests import OTHER_NAMESPACE, new_job, new_pod, role

QUOTA_S = 20.0
PENDING_TIMEOUT_S = 45
LONGEST_BLIND_S = 100.0
"""The operator notices within 30 s that nodes cannot be read, and again that they can; plus the time of faults."""


async def start_jobs(env: TrainingEnvironment, *jobs: dict[str, Any]) -> None:
    """The setup of most scenarios: jobs that were started one after the other and have run for 10 s."""
    env.start()
    await env.pass_time(2.0)
    for job in jobs:
        env.kube.create(job)
        await env.settle()
    await env.pass_time(10.0)
    env.start_recording()


def expect(env: TrainingEnvironment, **sizes: int) -> None:
    """Check the sizes that follow from the rules."""
    if (found := env.sizes()) != sizes:
        env.checks.add_violation(f"sizes {found}, by the rules {sizes}")


def edit(
    env: TrainingEnvironment, name: str, change: Callable[[dict[str, Any]], Any], namespace: str = NAMESPACE
) -> None:
    """A user edits the spec."""
    env.kube.edit_job(name, namespace, lambda obj: change(obj["spec"]))


async def wait_until(env: TrainingEnvironment, predicate: Callable[[], bool], within_s: float) -> bool:
    """Wait until the predicate is true; returns whether it was in time."""
    waited_s = 0.0
    while not predicate() and waited_s < within_s:
        await env.pass_time(1.0)
        waited_s += 1.0
    return predicate()


async def wait_for_reason(env: TrainingEnvironment, name: str, reason: str, within_s: float | None = None) -> None:
    """Wait until the sharing pass reports this reason (a reason of the pods may be reported first)."""

    def said() -> Any:
        return condition(env.kube.job(name, NAMESPACE) or {}, constants.WAITING).get("reason")

    if not await wait_until(env, lambda: said() == reason, within_s or env.esr_s):
        env.checks.add_violation(f"{name} should report {reason}, and reports {said()}")


def uid_of(env: TrainingEnvironment, name: str, namespace: str = NAMESPACE) -> str:
    """The uid of the job of that name."""
    job = env.kube.job(name, namespace)
    assert job is not None
    uid: str = job["metadata"]["uid"]
    return uid


# --- scenarios-----------------------------------------------------------------------------------------------------------


async def grow_alone(env: TrainingEnvironment) -> None:
    """A job with a master and parameter servers starts in order and grows to its maximum."""
    env.start()
    await env.pass_time(2.0)
    env.start_recording()
    others = {"pserver": {"min-instance": 1, **role("1")}, "master": role("1")}
    env.kube.create(new_job("a", 2, 6, **others))
    await env.settle()
    expect(env, a=6)


async def share_evenly(env: TrainingEnvironment) -> None:
    """The first job is at its maximum; a second one starts with its minimum, and both end with equal sizes."""
    scaling = {"rebalance": True, "growCooldownSeconds": 2, "shrinkCooldownSeconds": 2}
    await start_jobs(env, new_job("a", 4, 8, scaling=scaling))
    expect(env, a=8)
    env.kube.create(new_job("b", 4, 8, namespace=OTHER_NAMESPACE, scaling=scaling))
    await env.settle(within_s=150.0)
    expect(env, a=6, b=6)


async def gang_reclaims(env: TrainingEnvironment) -> None:
    """A gang with GPUs starts; the job with GPUs releases exactly what it needs, the job without GPUs nothing."""
    await start_jobs(env, new_job("g", 2, 8, gpu=1, cpu="500m"), new_job("c", 1, 4))
    expect(env, g=8, c=4)
    env.kube.create(new_job("d", 3, 3, gpu=1, cpu="500m"))
    await env.settle()
    expect(env, g=5, c=4, d=3)


async def one_node_released(env: TrainingEnvironment) -> None:
    """A trainer as large as a node starts: the four trainers of one node are deleted for it, and no others.

    Choosing by index deleted nine and recreated five (FD:SH-B3).
    """
    await start_jobs(env, new_job("a", 2, 12))
    expect(env, a=12)
    before = set(env.pod_tracker.live_pods(uid_of(env, "a"), constants.TRAINER))
    env.kube.create(new_job("d", 1, 1, cpu="4", startPolicy="Gang"))
    await env.settle()
    expect(env, a=8, d=1)
    staying = before.intersection(env.pod_tracker.live_pods(uid_of(env, "a"), constants.TRAINER))
    if len(staying) != 8:
        env.checks.add_violation(f"{len(before) - len(staying)} of {len(before)} trainers were removed, 4 by the rules")


async def one_ends(env: TrainingEnvironment) -> None:
    """One job has processed all of its data: it ends, and the other one grows into its capacity."""
    await start_jobs(env, new_job("a", 4, 10), new_job("b", 3, 12))
    sizes = env.sizes()
    if sum(sizes.values()) != 12:
        env.checks.add_violation(f"the cluster is not full: {sizes}")
    env.kube.finish_job(uid_of(env, "a"))
    await env.settle()
    expect(env, a=0, b=12)


async def bounds_edited(env: TrainingEnvironment) -> None:
    """The maximum falls below what runs, later the minimum rises above it."""
    await start_jobs(env, new_job("a", 2, 8))
    edit(env, "a", lambda spec: spec["trainer"].update({"max-instance": 3}))
    await env.settle()
    expect(env, a=3)
    edit(env, "a", lambda spec: spec["trainer"].update({"min-instance": 5, "max-instance": 5}))
    await env.settle()
    expect(env, a=5)


async def shrunk_without_zero(env: TrainingEnvironment) -> None:
    """The maximum falls and trainer 0 is lost at once: it is recreated, and one more trainer is deleted for it."""
    await start_jobs(env, new_job("a", 2, 6))
    env.kube.force_delete_pod_in("a-trainer-0", NAMESPACE)
    edit(env, "a", lambda spec: spec["trainer"].update({"max-instance": 4}))
    await env.settle()
    expect(env, a=4)


async def scaled_by_hand(env: TrainingEnvironment) -> None:
    """`kubectl scale` takes effect at once, and sharing continues after the cooldown."""
    await start_jobs(env, new_job("a", 2, 8, scaling={"growCooldownSeconds": 20}))
    env.kube.scale("a", NAMESPACE, 4)
    await env.pass_time(12.0)
    if not env.script.met and env.sizes()["a"] != 4:
        env.checks.add_violation(f"scaled to 4 by hand, and there are {env.sizes()}")
    await env.settle()
    expect(env, a=8)


async def suspended(env: TrainingEnvironment) -> None:
    """A job is suspended while it shrinks for another one, and resumes later with a maximum that fits by then."""
    await start_jobs(env, new_job("a", 2, 12))
    env.kube.create(new_job("b", 4, 4))
    await env.pass_time(1.5)
    edit(env, "a", lambda spec: spec.update(suspend=True))
    await env.settle()
    expect(env, a=0, b=4)
    edit(env, "a", lambda spec: spec["trainer"].update({"max-instance": 8}))
    edit(env, "a", lambda spec: spec.update(suspend=False))
    await env.settle()
    expect(env, a=8, b=4)


async def node_lost(env: TrainingEnvironment) -> None:
    """A node fails during a pass, its Node is deleted, and another one is added."""
    await start_jobs(env, new_job("a", 2, 12))
    env.kube.create(new_job("b", 2, 2))
    await env.pass_time(1.0)
    env.kube.lose_node("node-2")
    await env.pass_time(15.0)
    env.kube.delete_node("node-2")
    await env.pass_time(10.0)
    env.kube.add_node("node-2")
    await env.settle()
    expect(env, a=10, b=2)


async def cordoned(env: TrainingEnvironment) -> None:
    """A node is cordoned while it has free capacity: no job grows into it until it is uncordoned."""
    await start_jobs(env, new_job("a", 1, 4))
    env.kube.cordon("node-2")
    edit(env, "a", lambda spec: spec["trainer"].update({"max-instance": 12}))
    await env.pass_time(20.0)
    env.kube.cordon("node-2", is_cordoned=False)
    await env.settle()
    expect(env, a=12)


async def trainers_fail(env: TrainingEnvironment) -> None:
    """Two trainers fail, one is evicted: all are recreated after a back-off."""
    await start_jobs(env, new_job("a", 4, 4))
    for name in ("a-trainer-1", "a-trainer-3"):
        env.kube.fail_pod(name, NAMESPACE)
    await env.settle()
    env.kube.evict_pod_in("a-trainer-0", NAMESPACE)
    await env.settle()
    expect(env, a=4)


async def deleted_while_creating(env: TrainingEnvironment) -> None:
    """The user deletes the job after the first writes."""
    env.start()
    await env.pass_time(2.0)
    env.start_recording()
    env.kube.create(new_job("a", 5, 5))
    await env.pass_time(0.05)
    env.kube.delete(JOBS, "a", NAMESPACE)
    await env.settle()


async def recreated(env: TrainingEnvironment) -> None:
    """A job of the same name is created while the pods of the first are terminating."""
    await start_jobs(env, new_job("a", 3, 3))
    env.kube.delete(JOBS, "a", NAMESPACE)
    env.kube.create(new_job("a", 2, 2))
    await env.settle()
    expect(env, a=2)


async def impossible(env: TrainingEnvironment) -> None:
    """A job and an external pod that fit on no node: no trainer is deleted for them."""
    await start_jobs(env, new_job("a", 2, 12))
    env.kube.create(new_job("x", 2, 2, cpu="9"))
    env.kube.create(new_pod("giant", "1000"))
    await env.settle()
    expect(env, a=12, x=2)
    await wait_for_reason(env, "x", "Unsatisfiable")


async def impossible_gang(env: TrainingEnvironment) -> None:
    """A gang that fits on no node starts while nodes cannot be read: it is admitted, and releases its capacity."""
    await start_jobs(env, new_job("a", 2, 8))
    are_nodes_hidden, trust = [True], env.checks.has_full_view

    def no_nodes(request: Request) -> Answer | None:
        is_hidden = are_nodes_hidden[0] and request.method == "GET" and request.path.endswith("/nodes")
        return Answer(403, message="nodes is forbidden") if is_hidden else None

    env.transport.admission = no_nodes
    env.checks.has_full_view = False
    env.kube.create(new_job("x", 2, 2, gpu=5, pendingTimeoutSeconds=PENDING_TIMEOUT_S, startPolicy="Gang"))
    if not await wait_until(env, lambda: env.sizes()["x"] == 2, LONGEST_BLIND_S):
        env.checks.add_violation(f"while capacity is unknown every gang starts, but the sizes are {env.sizes()}")
    are_nodes_hidden[0] = False
    env.disturbed_until_s = env.loop.time()
    if not await wait_until(env, lambda: env.sizes()["x"] == 0, PENDING_TIMEOUT_S + LONGEST_BLIND_S):
        env.checks.add_violation(f"it has not released its capacity: {env.sizes()}")
    env.checks.has_full_view = trust
    await wait_for_reason(env, "x", constants.GANG_TIMEOUT)
    await wait_for_reason(env, "x", "Unsatisfiable", within_s=2 * LONGEST_BLIND_S)
    await env.settle()
    expect(env, a=8, x=0)


async def quota(env: TrainingEnvironment) -> None:
    """F11: admission rejects the third trainer of one job for a while; the other job gets all of its trainers (RM:I18)."""
    env.start()
    await env.pass_time(2.0)
    env.start_recording()
    until_s = env.loop.time() + QUOTA_S

    def two_of_a(request: Request) -> Answer | None:
        is_trainer_of_a = request.method == "POST" and b'"paddle-job":"a"' in request.body
        if is_trainer_of_a and env.sizes().get("a", 0) >= 2 and env.loop.time() < until_s:
            return Answer(403, message="exceeded quota: two trainers of a")
        return None

    env.transport.admission = two_of_a
    env.kube.create(new_job("a", 4, 4))
    env.kube.create(new_job("b", 2, 2))
    await env.pass_time(QUOTA_S - 1.0)
    waiting = condition(env.kube.job("a", NAMESPACE) or {}, constants.WAITING)
    if not env.script.met and (env.sizes() != {"a": 2, "b": 2} or waiting.get("status") != "True"):
        env.checks.add_violation(f"under a quota of two: {env.sizes()}, {waiting}")
    env.disturbed_until_s = until_s
    await env.settle()
    expect(env, a=4, b=2)


async def other_pods(env: TrainingEnvironment) -> None:
    """External pods use free capacity and are deleted; the job grows around them and never deletes them."""
    await start_jobs(env, new_job("a", 2, 12), new_job("b", 1, 1))
    for number in range(3):
        env.kube.create(new_pod(f"web-{number}", "1", job="a"))
    env.kube.delete(JOBS, "b", NAMESPACE)
    await env.settle()
    for number in range(3):
        env.kube.force_delete_pod_in(f"web-{number}", NAMESPACE)
    await env.settle()
    expect(env, a=12)


async def objects_deleted(env: TrainingEnvironment) -> None:
    """F12: another writer deletes the service and the membership, later the record and the status."""
    await start_jobs(env, new_job("a", 2, 6))
    env.kube.delete("services", "a", NAMESPACE)
    env.kube.delete("configmaps", "a-membership", NAMESPACE)
    await env.settle()
    env.kube.edit_job("a", NAMESPACE, lambda obj: obj["metadata"].pop("annotations", None))
    env.kube.edit(JOBS, "a", None, lambda obj: obj.update(status={}), subresource="status")
    await env.pass_time(3.0)
    await env.settle()
    expect(env, a=6)


async def upgrade(env: TrainingEnvironment) -> None:
    """RM:S14: SIGTERM, and a new operator has nothing to write for running jobs (RM:I19)."""
    await start_jobs(env, new_job("a", 2, 8), new_job("b", 2, 2, gpu=1))
    await env.operator.stop()
    env.operator.start()
    await env.pass_time(60.0)


def _scenario(
    name: str,
    run: Callable[[TrainingEnvironment], Awaitable[None]],
    *,
    is_exact: bool = False,
    is_quiet: bool = False,
    environment: type[TrainingEnvironment] = TrainingEnvironment,
) -> Scenario:
    async def run_steps(environment: Environment) -> None:
        assert isinstance(environment, TrainingEnvironment)
        await run(environment)

    return Scenario(name, run_steps, has_exact_counts=is_exact, is_quiet=is_quiet, environment=environment)


TRAINING = (
    _scenario("job-grows-alone", grow_alone, is_exact=True),
    _scenario("jobs-meet", share_evenly),
    _scenario("gang-reclaims", gang_reclaims),
    _scenario("one-node-released", one_node_released),
    _scenario("job-ends", one_ends),
    _scenario("bounds-edited", bounds_edited),
    _scenario("shrunk-without-zero", shrunk_without_zero),
    _scenario("scaled-by-hand", scaled_by_hand),
    _scenario("suspended-while-shrinking", suspended),
    _scenario("job-node-lost", node_lost, environment=AnyIndexEnvironment),
    _scenario("job-node-cordoned", cordoned),
    _scenario("trainers-fail", trainers_fail, is_exact=True),
    _scenario("job-deleted-while-creating", deleted_while_creating),
    _scenario("job-made-again", recreated),
    _scenario("impossible-job", impossible),
    _scenario("impossible-gang-unseen", impossible_gang),
    _scenario("job-under-quota", quota),
    _scenario("strangers-come-and-go", other_pods),
    _scenario("foreign-hands", objects_deleted),
    _scenario("job-upgrade", upgrade, is_exact=True, is_quiet=True),
)
"""Each fault is tried at every point of these."""
