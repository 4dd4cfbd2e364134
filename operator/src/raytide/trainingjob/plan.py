"""Plan of a TrainingJob: the writes that bring it to the state in its spec and its size.

Takes the job, its observed state and the settings, and returns the writes in order: service, membership, surplus pods,
replaced pods, then master, parameter servers and trainers, each role once the one before is ready. It is a pure
function, and its result is empty once everything exists. It never changes the spec, because sizes come from the sharing
pass; what has to survive a crash (counted pods, the verdict, a gang's time-out) is in the status before anything is
deleted for it. Called by the reconciler; rules TJ §3, §6, §7, D5.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import Final

import msgspec

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import MAX_WRITES, Action, Create, Delete, EventSpec, Patch
from raytide.api.config import JobConfig
from raytide.api.limits import MAX_BUILT_BYTES
from raytide.api.meta import CONFIG_MAPS, PODS, SERVICES, TRAININGJOBS
from raytide.api.plan import earliest, run_steps
from raytide.api.sharing_record import core_nodes_of, placements_of
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_object import JobObject, digest
from raytide.api.trainingjob_pod import JobPod
from raytide.api.trainingjob_pods import role_spec
from raytide.api.violations import Violation
from raytide.trainingjob import messages
from raytide.trainingjob.events import events_of
from raytide.trainingjob.lifecycle import (
    deadline_left_s,
    gang_start_left_s,
    has_minimum,
    is_over,
    pending_time_left_s,
    ttl_left_s,
)
from raytide.trainingjob.manifests.objects import (
    build_membership,
    build_pods,
    build_service,
    membership_name,
    pod_name,
    service_name,
)
from raytide.trainingjob.observed import Observed
from raytide.trainingjob.plan_context import PlanContext, build_context
from raytide.trainingjob.plan_types import (
    ANNOUNCEMENT_SLOT,
    JOB_SLOT,
    MEMBERSHIP_SLOT,
    NOTHING,
    SERVICE_SLOT,
    SOON_S,
    TrainingJobPlan,
)
from raytide.trainingjob.trainer_indices import is_alive, planned_nodes
from raytide.trainingjob.validation import violations, warnings
from raytide.trainingjob.waiting_condition import late_text


def plan(job: TrainingJob, observed: Observed, config: JobConfig) -> TrainingJobPlan:
    """Run the steps in order; each may add writes, and may be the last."""
    now = build_context(job, observed, config)
    return replace(run_steps(STEPS, now), config=config)


def plan_unreadable(
    job: TrainingJob, observed: Observed, config: JobConfig, found: Sequence[Violation]
) -> TrainingJobPlan:
    """Plan of a suspended job whose spec cannot be parsed: its pods are deleted, and the violations are reported."""
    events = tuple(EventSpec(constants.INVALID_SPEC, str(violation)) for violation in found)
    reported = TrainingJobPlan(violations=tuple(found), events=events)
    steps = (leave_to_garbage_collection, end_suspended, lambda _: reported)
    return replace(run_steps(steps, build_context(job, observed, config)), config=config)


# --- steps before anything runs --------------------------------------------------------------------------------------


def leave_to_garbage_collection(ctx: PlanContext) -> TrainingJobPlan:
    """Leave a job that is being deleted to garbage collection: every child has an owner reference (D14)."""
    return TrainingJobPlan(is_reported=False, is_last=True) if ctx.job.metadata.deletion_timestamp else NOTHING


def clean_up_finished(ctx: PlanContext) -> TrainingJobPlan:
    """Delete pods that still run once the job has finished, and the job when its TTL expires (TJ §7.12).

    Finished pods stay until then, for their logs.
    """
    if not is_over(ctx.job.status):
        return NOTHING
    left_s = ttl_left_s(ctx.job, ctx.observed)
    if left_s is not None and left_s <= 0:
        return TrainingJobPlan(actions=(_delete_job(ctx.job),), is_last=True)
    running = _end(filter(is_alive, ctx.observed.pods), messages.JOB_ENDED)
    return running + TrainingJobPlan(requeue_after_s=left_s, is_last=True)


def check_spec(ctx: PlanContext) -> TrainingJobPlan:
    """Report violations and warnings of the spec as events; with a violation nothing else is done, and running pods are kept."""
    found = violations(ctx.job)
    events = tuple(
        EventSpec(constants.INVALID_SPEC, str(violation)) for violation in (*found, *warnings(ctx.job, ctx.config.gpus))
    )
    return TrainingJobPlan(violations=found, events=events, is_last=bool(found))


def report_events(ctx: PlanContext) -> TrainingJobPlan:
    """Emit events about what is not in the status yet; requeue soon so that a status with fresh endings is written."""
    return TrainingJobPlan(
        events=events_of(ctx),
        requeue_after_s=earliest(SOON_S if ctx.counts.new_terminations else None, ctx.counts.requeue_after_s),
    )


def end_when_decided(ctx: PlanContext) -> TrainingJobPlan:
    """Write the verdict to the status before anything is deleted for it; until then create nothing."""
    if ctx.result is not None:
        return TrainingJobPlan(requeue_after_s=SOON_S, is_last=True)
    return TrainingJobPlan(requeue_after_s=deadline_left_s(ctx.job, ctx.observed))


def end_suspended(ctx: PlanContext) -> TrainingJobPlan:
    """Delete all pods of a suspended job, with the grace period of their spec.

    An invalid spec does not prevent that: the user or queue controller waits for the capacity.
    """
    return _end(filter(is_alive, ctx.observed.pods), messages.JOB_SUSPENDED) if ctx.job.spec.suspend else NOTHING


def hold_while_suspended(ctx: PlanContext) -> TrainingJobPlan:
    """Create nothing for a suspended job."""
    return TrainingJobPlan(is_last=ctx.job.spec.suspend)


def hold_gang(ctx: PlanContext) -> TrainingJobPlan:
    """Create no pods of a gang before its admission (TJ §3 row 11); delete those of one that released its capacity."""
    if ctx.may_have_pods:
        return NOTHING
    victims = filter(is_alive, ctx.observed.pods) if ctx.admission_revoked else ()
    return replace(_end(victims, messages.GANG_RELEASES_CAPACITY), is_last=True)


def evict_timed_out_start(ctx: PlanContext) -> TrainingJobPlan:
    """Release the capacity of a job whose minimum does not start in time (TJ §6: PaddleCloud #258; FD:SH-B14)."""
    left_s = gang_start_left_s(ctx.job, ctx.observed) if ctx.is_gang else pending_time_left_s(ctx.job, ctx.observed)
    if left_s is None or has_minimum(ctx.job, ctx.observed, ctx.counts):
        return NOTHING
    if left_s > 0:
        return TrainingJobPlan(requeue_after_s=left_s)
    return TrainingJobPlan(
        events=(EventSpec(constants.GANG_TIMEOUT, late_text(ctx), action="GiveBack"),),
        is_gang_late=True,
        requeue_after_s=SOON_S,
        is_last=True,
    )


# --- objects besides pods --------------------------------------------------------------------------------------------


def ensure_service(ctx: PlanContext) -> TrainingJobPlan:
    """Create the headless service once; it gives every pod a stable name."""
    name = service_name(ctx.job)
    if ctx.observed.service(name) is not None or name in ctx.observed.foreign_names:
        return NOTHING
    create = Create(
        SERVICES,
        build_service(ctx.job),
        success_reason=constants.CREATED_SERVICE,
        failure_reason=constants.FAILED_TO_CREATE_SERVICE,
        group=SERVICE_SLOT,
    )
    return replace(_unless_rejected(ctx, SERVICE_SLOT, lambda: [create]), is_continued=True)


def ensure_membership(ctx: PlanContext) -> TrainingJobPlan:
    """Keep the ConfigMap with the list of members, updated before pods change (TJ §7.7, §6: PaddleCloud #411)."""
    manifest = build_membership(ctx.job, ctx.size, ctx.config)
    name = membership_name(ctx.job)
    found = ctx.observed.config_map(name)
    if found is None and name in ctx.observed.foreign_names:
        return NOTHING
    if found is None:
        create = Create(
            CONFIG_MAPS,
            manifest,
            success_reason=constants.CREATED_MEMBERSHIP,
            failure_reason=constants.FAILED_TO_CREATE_MEMBERSHIP,
            group=MEMBERSHIP_SLOT,
        )
        return replace(_unless_rejected(ctx, MEMBERSHIP_SLOT, lambda: [create]), is_continued=True)
    difference = _difference(found, manifest["data"])
    if not difference or not found.uid:
        return NOTHING
    patch = Patch(
        CONFIG_MAPS,
        found.namespace,
        found.name,
        found.uid,
        {"data": difference, "metadata": {"annotations": manifest["metadata"]["annotations"]}},
        success_reason=constants.UPDATED_MEMBERSHIP,
        failure_reason=constants.FAILED_TO_UPDATE_MEMBERSHIP,
        group=MEMBERSHIP_SLOT,
    )
    return _unless_rejected(ctx, MEMBERSHIP_SLOT, lambda: [patch])


def _difference(found: JobObject, wanted: Mapping[str, str]) -> dict[str, str | None]:
    """The patch of its `data` that makes the files as wanted; None removes one."""
    changed = {name: text for name, text in wanted.items() if found.files.get(name) != digest(text)}
    return {**dict.fromkeys(sorted(found.files.keys() - wanted.keys())), **changed}


def announce_membership(ctx: PlanContext) -> TrainingJobPlan:
    """Annotate pods with the revision of the membership that their kubelet has not been told of (SC:S25).

    A kubelet updates the mounted files of a pod when it syncs it: after a change of the pod at once, else once a minute or so. Pods
    are left alone until the membership changes for the first time under an operator that writes revisions.
    """
    found = ctx.observed.config_map(membership_name(ctx.job))
    if found is None or not found.membership_revision:
        return NOTHING
    leaving = {pod.uid for pod in ctx.wanted.victims}
    stale = [
        pod
        for pod in (*ctx.observed.pservers, *ctx.observed.trainers)
        if pod.is_running
        and is_alive(pod)
        and pod.membership_revision != found.membership_revision
        and pod.uid not in leaving
    ]
    if not stale or _difference(found, build_membership(ctx.job, ctx.size, ctx.config)["data"]):
        return NOTHING  # the files are about to change again
    annotations = {constants.MEMBERSHIP_ANNOTATION: found.membership_revision}
    return TrainingJobPlan(
        actions=tuple(
            Patch(
                PODS,
                pod.namespace,
                pod.name,
                pod.uid,
                {"metadata": {"annotations": annotations}},
                group=ANNOUNCEMENT_SLOT,
            )
            for pod in stale[:MAX_WRITES]
        )
    )


# --- deletes ---------------------------------------------------------------------------------------------------------


def remove_trainers(ctx: PlanContext) -> TrainingJobPlan:
    """Delete trainers beyond the size, cheapest loss first (TJ 7.5; Volcano #2074)."""
    alive = sum(map(is_alive, ctx.observed.trainers))
    return _end(ctx.wanted.victims, messages.surplus_trainers(len(ctx.wanted.active), alive))


def remove_pservers(ctx: PlanContext) -> TrainingJobPlan:
    """Delete parameter servers that the existing trainers do not need, highest index first (TJ §3 row 4)."""
    trainers = sum(not pod.is_finished for pod in ctx.observed.trainers)
    pserver = ctx.job.spec.pserver
    needed = ctx.pservers if pserver is None else max(ctx.pservers, pserver.count_for(trainers))
    surplus = [pod for pod in ctx.observed.pservers if is_alive(pod) and (pod.index is None or pod.index >= needed)]
    surplus.sort(key=lambda pod: pod.index or 0, reverse=True)
    return _end(surplus, messages.surplus_pservers(needed))


def remove_needless_master(ctx: PlanContext) -> TrainingJobPlan:
    """Delete the master of a job whose spec has none any more."""
    return NOTHING if ctx.job.has_master else _end(filter(is_alive, ctx.observed.masters), messages.NO_MASTER)


def delete_counted_pods(ctx: PlanContext) -> TrainingJobPlan:
    """Delete ended pods that will be replaced, once the backoff after the failure is over: their logs stay until then.

    Only pods whose uid is in the status are deleted, so that each is counted exactly once.
    """
    wait_s = ctx.counts.wait_s(ctx.observed.seen_at)
    replaceable = [pod for pod in ctx.observed.pods if _is_replaceable(ctx, pod)]
    if not replaceable:
        return NOTHING
    if wait_s > 0:
        return TrainingJobPlan(requeue_after_s=wait_s)
    return _end(replaceable, messages.POD_REPLACED)


def _is_replaceable(ctx: PlanContext, pod: JobPod) -> bool:
    if not pod.is_finished or pod.is_terminating or pod.uid not in ctx.counts.counted_uids:
        return False
    return pod.role != constants.TRAINER or (pod.has_failed and pod.index not in ctx.counts.permanently_failed)


# --- creates ---------------------------------------------------------------------------------------------------------


def start_master(ctx: PlanContext) -> TrainingJobPlan:
    """Create the master before all other pods (TJ §6: PaddleCloud #399)."""
    return _start_core(ctx, constants.MASTER, 1) if ctx.job.has_master else NOTHING


def start_pservers(ctx: PlanContext) -> TrainingJobPlan:
    """Create all parameter servers once the master is ready."""
    return _start_core(ctx, constants.PSERVER, ctx.pservers) if _is_master_ready(ctx) else NOTHING


def _start_core(ctx: PlanContext, role: str, count: int) -> TrainingJobPlan:
    """Create what is missing of a role that starts before the trainers, on the nodes that the plan has for it."""
    missing = max(0, count - sum(map(is_alive, ctx.observed.of(role))))
    planned = core_nodes_of(ctx.record, ctx.job.ordered_replicas(), role)
    return _start(ctx, role, range(count), nodes=planned_nodes(planned, missing))


def start_trainers(ctx: PlanContext) -> TrainingJobPlan:
    """Create trainers once master and parameter servers are ready.

    A trainer is not replaced before its delete is accepted: if it were rejected, there would be one too many.
    """
    if not _is_master_ready(ctx):
        return NOTHING
    ready = {pod.index for pod in ctx.observed.pservers if is_alive(pod) and pod.is_running_and_ready}
    if not ready.issuperset(range(ctx.pservers)):
        return NOTHING
    missing = max(0, len(ctx.wanted.active) - sum(map(is_alive, ctx.observed.trainers)))
    placements = placements_of(ctx.record, ctx.job.ordered_replicas())
    return _start(ctx, constants.TRAINER, ctx.wanted.active, maximum=missing, nodes=planned_nodes(placements, missing))


def _is_master_ready(ctx: PlanContext) -> bool:
    is_ready = any(pod.is_running_and_ready for pod in ctx.observed.masters if is_alive(pod))
    return is_ready or not ctx.job.has_master


def _start(
    ctx: PlanContext, role: str, indices: Iterable[int], maximum: int = MAX_WRITES, nodes: Iterable[str] = ()
) -> TrainingJobPlan:
    """Create the missing pods whose names are free (kubernetes #115844); an earlier job's children hold names too.

    None before this job's service and membership exist: by those of another owner they would find foreign members.
    Pods beyond `maximum` or the plan's budget are created by the next reconcile: one role starts at a time. The missing
    pods prefer `nodes`, in order of their indices; "" is none.
    """
    if not _has_rendezvous(ctx):
        return NOTHING
    taken = {pod.name for pod in ctx.observed.of(role)} | ctx.observed.foreign_names
    free = (index for index in indices if pod_name(ctx.job, role, index) not in taken)
    missing = list(islice(free, MAX_WRITES + 1))
    maximum = min(maximum, _max_built(ctx, role))
    if not missing:
        return NOTHING
    wait_s = ctx.counts.wait_s(ctx.observed.seen_at)
    if wait_s > 0:
        return TrainingJobPlan(requeue_after_s=wait_s)
    planned = dict(zip(missing[:maximum], chain(nodes, repeat("")), strict=False))
    created = _unless_rejected(ctx, role, lambda: _create_pods(ctx, role, planned))
    return replace(created, is_continued=len(missing) > maximum)


STEPS: Final[tuple[Callable[[PlanContext], TrainingJobPlan], ...]] = (
    leave_to_garbage_collection,
    clean_up_finished,
    end_suspended,
    check_spec,
    report_events,
    end_when_decided,
    hold_while_suspended,
    hold_gang,
    evict_timed_out_start,
    ensure_service,
    ensure_membership,
    remove_trainers,
    remove_pservers,
    remove_needless_master,
    delete_counted_pods,
    start_master,
    start_pservers,
    start_trainers,
    announce_membership,
)


def _max_built(ctx: PlanContext, role: str) -> int:
    """How many pods of a role one plan may build: each is built separately, and blocks the event loop meanwhile."""
    spec, own = ctx.job.spec, role_spec(ctx.job, role)
    written = [
        own.env,
        own.envs,
        own.template,
        own.tolerations,
        own.node_selector,
        spec.volumes,
        spec.volume_mounts,
    ]
    return max(1, min(MAX_WRITES, MAX_BUILT_BYTES // len(msgspec.json.encode(written))))


def _has_rendezvous(ctx: PlanContext) -> bool:
    """Whether the job's own service and membership exist, not those of an earlier job or another owner."""
    service, membership = service_name(ctx.job), membership_name(ctx.job)
    return ctx.observed.service(service) is not None and ctx.observed.config_map(membership) is not None


# --- shared by the steps ---------------------------------------------------------------------------------------------


def _unless_rejected(ctx: PlanContext, group: str, writes: Callable[[], Iterable[Action]]) -> TrainingJobPlan:
    """The writes, or only a requeue delay while the group's backoff after a rejection lasts."""
    return TrainingJobPlan.unless_rejected(ctx.observed.pending_retry_of(group), writes)


def _create_pods(ctx: PlanContext, role: str, nodes: Mapping[int, str]) -> Iterable[Create]:
    for manifest in build_pods(ctx.job, role, nodes, ctx.size, ctx.config):
        yield Create(
            PODS,
            manifest,
            success_reason=constants.CREATED_POD,
            failure_reason=constants.FAILED_TO_CREATE_POD,
            group=role,
        )


def _end(victims: Iterable[JobPod], why: str) -> TrainingJobPlan:
    return TrainingJobPlan.deleting(_delete(pod, why) for pod in victims)


def _delete(pod: JobPod, why: str) -> Delete:
    return Delete(
        PODS, pod.namespace, pod.name, pod.uid, constants.DELETED_POD, constants.FAILED_TO_DELETE_POD, pod.role, why
    )


def _delete_job(job: TrainingJob) -> Delete:
    metadata = job.metadata
    return Delete(
        TRAININGJOBS,
        metadata.namespace,
        metadata.name,
        metadata.uid,
        constants.DELETED_JOB,
        constants.FAILED_TO_DELETE_JOB,
        JOB_SLOT,
        messages.job_expired(job.spec.ttl_seconds_after_finished),
    )
