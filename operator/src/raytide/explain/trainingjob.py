"""Explanation of a TrainingJob.

Takes the object, its pods and the nodes and events that could be read, and returns its blockers, roles and stages. The reason
is that of the condition `Waiting`, which has the sharing pass's reason, a rejection or the failure of a pod; where the sharing
record has another one besides, both are reported. Called by explain.py (SC:S21, TJ §7.8).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from raytide.api import trainingjob_constants as constants
from raytide.api.conditions import ConditionJson, find_condition, timestamp
from raytide.api.gang_admission import is_admitted
from raytide.api.pod_failure import failure_of
from raytide.api.record_fields import stored_diagnoses
from raytide.api.sharing_record import SharingRecord
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pod import JobPod
from raytide.diagnosis import catalogue
from raytide.diagnosis.model import Diagnosis, Stage
from raytide.explain import messages
from raytide.explain.findings import Findings, blocker, terminating
from raytide.explain.holders import pending
from raytide.explain.model import TRAININGJOB, Blocker, GroupLine, Need, Objects, Phase, PodLine, Size, StageLine
from raytide.explain.sharing_sentences import deciding
from raytide.fairshare.pod_requirements import role_shape
from raytide.trainingjob.causes import contention, live_pods, located, workload_of


@dataclass(frozen=True)
class _Context:
    """One TrainingJob with everything that was read for it."""

    job: TrainingJob
    objects: Objects
    now: datetime

    @property
    def conditions(self) -> Sequence[ConditionJson]:
        return tuple(self.job.status.get("conditions") or ())

    def condition(self, kind: str) -> ConditionJson | None:
        """The condition if it is present and True."""
        found = find_condition(self.conditions, kind)
        return found if found is not None and found.get("status") == "True" else None

    @cached_property
    def pods(self) -> tuple[JobPod, ...]:
        """The pods that the job owns, without those that have ended or are terminating."""
        uid = self.job.metadata.uid
        return live_pods(pod for pod in self.objects.pods or () if isinstance(pod, JobPod) and pod.owner_uid == uid)

    @property
    def has_pods(self) -> bool:
        return self.objects.pods is not None

    def of(self, role: str) -> list[JobPod]:
        """The pods of a role."""
        return [pod for pod in self.pods if pod.role == role]

    @cached_property
    def record(self) -> SharingRecord | None:
        """The sharing record if it is this job's."""
        return self.job.record

    @cached_property
    def end(self) -> ConditionJson | None:
        """The condition Succeeded or Failed."""
        return self.condition(constants.SUCCEEDED) or self.condition(constants.FAILED)

    @cached_property
    def may_have_pods(self) -> bool:
        """Whether it is neither suspended nor over, and admitted if it is a gang."""
        if self.job.spec.suspend or self.end is not None:
            return False
        admitted = find_condition(self.conditions, constants.ADMITTED)
        is_free = admitted is not None and admitted.get("status") == "True"
        return is_free or is_admitted(self.job, self.record)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Wanted pods by role, as they are once the job may have pods."""
        job, trainers = self.job, self.job.desired_replicas()
        done = self.job.status.get(constants.TRAINER)
        succeeded = done.get("succeeded") if isinstance(done, Mapping) else 0
        pserver = job.spec.pserver
        pservers = 0
        if pserver is not None:
            of_record = self.record.pservers if self.record is not None and pserver.is_by_ratio else None
            pservers = pserver.count_for(trainers) if of_record is None else pserver.clamp(of_record)
        return {
            constants.MASTER: int(job.has_master),
            constants.PSERVER: pservers,
            constants.TRAINER: max(0, trainers - (succeeded if isinstance(succeeded, int) else 0)),
        }

    def wanted(self, role: str) -> int:
        """Wanted pods of a role now."""
        return self.sizes[role] if self.may_have_pods else 0

    def blocker(self, found: Diagnosis, *, since: str = "", is_permanent: bool | None = None) -> Blocker:
        """The diagnosis with what it needs of the job."""
        return blocker(found, workload_of(self.job), since=since, is_permanent=is_permanent)


def explain_trainingjob(job: TrainingJob, objects: Objects, now: datetime) -> Findings:
    """Everything about one TrainingJob; the caller sorts and bounds it."""
    ctx = _Context(job, objects, now)
    blockers, size = tuple(_blockers(ctx)), _size(ctx)
    return Findings(
        blockers=blockers,
        groups=tuple(_group_lines(ctx, blockers)),
        stages=tuple(_stages(ctx)),
        pods=tuple(_pod_lines(ctx)),
        notes=tuple(_notes(ctx)),
        summary=_summary(ctx, size),
        size=size,
        needs=tuple(_needs(ctx)) if objects.cluster is not None else (),
        resizes=ctx.record.resizes if ctx.record is not None else (),
    )


# --- blockers --------------------------------------------------------------------------------------------------------


def _blockers(ctx: _Context) -> Iterator[Blocker]:
    job, meta = ctx.job, ctx.job.metadata
    if meta.deletion_timestamp:
        yield ctx.blocker(terminating(meta), since=meta.deletion_timestamp)
    if ctx.end is not None:
        if ctx.end.get("type") == constants.FAILED:
            yield _of_condition(ctx, ctx.end, is_permanent=True)
        return
    invalid = ctx.condition(constants.INVALID)
    if invalid is not None:
        yield _of_condition(ctx, invalid)
        return
    seen = job.status.get("observedGeneration")
    if not isinstance(seen, int) or seen < meta.generation:
        since = "" if isinstance(seen, int) else meta.creation_timestamp
        found = Diagnosis(catalogue.NOT_RECONCILED, message=messages.not_reconciled(meta.generation, seen))
        yield ctx.blocker(found, since=since)
    if job.spec.suspend:
        stored = ctx.condition(constants.SUSPENDED)
        since = str(stored.get("lastTransitionTime") or "") if stored else ""
        yield ctx.blocker(Diagnosis(catalogue.SUSPENDED, message=messages.JOB_SUSPENDED), since=since)
        return
    yield from _waiting(ctx)
    contended = ctx.condition(constants.REPLICAS_CONTENDED)
    if contended is not None and ctx.record is not None and ctx.record.request is not None:
        found = contention(ctx.record.request, ctx.record.replicas)
        yield ctx.blocker(found, since=str(contended.get("lastTransitionTime") or ""))
    requested, ceiling = job.spec.trainer.replicas, job.spec.trainer.ceiling
    if requested is not None and requested > ceiling:
        text = messages.replicas_clamped(requested, ceiling)
        found = Diagnosis(catalogue.REPLICAS_CLAMPED, requested - ceiling, text, constants.TRAINER)
        yield ctx.blocker(found.having(limit=f"max-instance {ceiling}"))


def _waiting(ctx: _Context) -> Iterator[Blocker]:
    """The condition Waiting, and what the sharing record has besides; without either, pods that are missing."""
    stored = find_condition(ctx.conditions, constants.WAITING)
    if stored is not None:
        yield _of_condition(ctx, stored, stored_diagnoses(ctx.job.status))
    noted = ctx.record.waiting if ctx.record is not None else None
    is_valid = noted is not None and not (noted.is_below_minimum and ctx.condition(constants.RUNNING) is not None)
    if noted is not None and is_valid and (stored is None or stored.get("reason") != noted.reason):
        yield ctx.blocker(noted.diagnosis)
    if stored is not None or not ctx.has_pods:
        return
    for role in constants.ROLES:
        pods, wanted = ctx.of(role), ctx.wanted(role)
        missing = wanted - sum(map(_is_there, pods))
        if missing <= 0:
            continue
        failure = next((found for pod in pods if (found := failure_of(pod)) is not None), None)
        if failure is not None:
            yield ctx.blocker(located(replace(failure, count=missing, group=role), pods))
        else:
            reason = catalogue.PODS_MISSING if len(pods) < wanted else "BelowMinimum"
            text = messages.pods_missing(wanted - len(pods), wanted) if len(pods) < wanted else ""
            text = text or messages.workers_starting(missing, wanted).replace("workers", f"{role} pods")
            yield ctx.blocker(located(Diagnosis(reason, missing, text, role), pods))


def _of_condition(
    ctx: _Context, condition: ConditionJson, stored: Iterable[Diagnosis] = (), *, is_permanent: bool | None = None
) -> Blocker:
    """The diagnosis of the condition's reason among the stored ones; else the condition as it is."""
    reason, message = str(condition.get("reason") or "Other"), str(condition.get("message") or "")
    found = next((each for each in stored if each.reason == reason), Diagnosis(reason, message=message))
    since = str(condition.get("lastTransitionTime") or "")
    return ctx.blocker(located(found, ctx.pods), since=since, is_permanent=is_permanent)


def _is_there(pod: JobPod) -> bool:
    """Whether it counts as `status` counts it: trainers run, other roles are ready."""
    return pod.is_running if pod.role == constants.TRAINER else pod.is_running_and_ready


# --- groups, stages, pods --------------------------------------------------------------------------------------------------


def _group_lines(ctx: _Context, blockers: Sequence[Blocker]) -> Iterator[GroupLine]:
    trainer, pserver = ctx.job.spec.trainer, ctx.job.spec.pserver
    bounds = {constants.MASTER: (1, 1), constants.TRAINER: (trainer.min_instance, trainer.ceiling)}
    if pserver is not None:
        bounds[constants.PSERVER] = (pserver.min_instance, pserver.ceiling)
    first = blockers[0].reason if blockers else ""
    for role in constants.ROLES if ctx.end is None else ():
        if not ctx.sizes[role] and role != constants.TRAINER:
            continue
        pods = ctx.of(role)
        there = sum(map(_is_there, pods))
        reason = next((each.reason for each in blockers if each.group == role), "")
        is_short = there < ctx.sizes[role] or role == constants.TRAINER
        yield GroupLine(
            role,
            *bounds[role],
            ctx.wanted(role),
            len(pods) if ctx.has_pods else None,
            there if ctx.has_pods else _status_number(ctx, role, "running" if role == constants.TRAINER else "ready"),
            reason or (first if is_short else ""),
        )


def _stages(ctx: _Context) -> Iterator[StageLine]:
    job, record = ctx.job, ctx.record
    if ctx.end is not None:
        return  # nothing is wanted any more
    trainer = job.spec.trainer
    yield StageLine(Stage.DEMAND, messages.job_demand(trainer.min_instance, trainer.ceiling), trainer.ceiling)
    at = timestamp(record.at) if record is not None and record.at is not None else ""
    yield StageLine(
        Stage.DECISION,
        messages.job_decision(at, has_record=record is not None, may_have_pods=ctx.may_have_pods),
        job.desired_replicas() if ctx.may_have_pods else 0,
    )
    roles = [(role, ctx.wanted(role)) for role in constants.ROLES if ctx.sizes[role] or role == constants.TRAINER]
    wanted = sum(number for _, number in roles)
    yield StageLine(Stage.WANTED, messages.wanted(roles), wanted)
    if not ctx.has_pods:
        running = [_status_number(ctx, role, "running") for role in constants.ROLES]
        ready = [_status_number(ctx, role, "ready") for role in constants.ROLES]
        yield StageLine(Stage.PODS, messages.pods_by_status(sum(running), sum(ready)), wanted, sum(running))
        yield StageLine(Stage.NODES, messages.NODES_UNKNOWN)
        return
    pods = ctx.pods
    yield StageLine(Stage.PODS, messages.pods(sum(pod.is_running_and_ready for pod in pods)), wanted, len(pods))
    placed = [pod for pod in pods if pod.node_name]
    text = messages.nodes(len({pod.node_name for pod in placed}), len(pods) - len(placed))
    yield StageLine(Stage.NODES, text, len(pods), len(placed))


def _status_number(ctx: _Context, role: str, key: str) -> int:
    numbers = ctx.job.status.get(role)
    found = numbers.get(key) if isinstance(numbers, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def _pod_lines(ctx: _Context) -> Iterator[PodLine]:
    uid = ctx.job.metadata.uid
    for pod in ctx.objects.pods or ():
        if not isinstance(pod, JobPod) or pod.owner_uid != uid or pod.has_succeeded:
            continue
        if pod.is_running_and_ready and not pod.is_terminating:
            continue
        failure = failure_of(pod)
        reason = failure.reason if failure else "Terminating" if pod.is_terminating else pod.reason
        yield PodLine(pod.name, pod.role, pod.phase, pod.node_name, reason, failure.message if failure else "")


def _notes(ctx: _Context) -> Iterator[str]:
    unsupported = ctx.condition(constants.UNSUPPORTED)
    if unsupported is not None:
        yield messages.unsupported(str(unsupported.get("message") or ""))
    if ctx.end is not None:
        return
    trainer, record = ctx.job.spec.trainer, ctx.record
    if record is not None and not ctx.job.spec.suspend:
        last = record.resizes[-1] if record.resizes else None
        yield from deciding(last, record.waiting, rebalances=ctx.job.spec.scaling.rebalance)
    if not ctx.job.spec.scaling.enabled:
        yield messages.SCALING_DISABLED
    elif ctx.may_have_pods and ctx.job.desired_replicas() >= trainer.ceiling:
        yield messages.job_at_maximum(trainer.ceiling)


def _running_trainers(ctx: _Context) -> int:
    """Trainers that run; those of the status, where pods cannot be read."""
    if not ctx.has_pods:
        return _status_number(ctx, constants.TRAINER, "running")
    return sum(pod.is_running for pod in ctx.of(constants.TRAINER))


def _size(ctx: _Context) -> Size:
    trainer, wanted = ctx.job.spec.trainer, ctx.wanted(constants.TRAINER)
    if ctx.end is not None:
        phase = Phase(str(ctx.end.get("type")))
        succeeded = _status_number(ctx, constants.TRAINER, "succeeded")
        return Size(needed=succeeded, phase=phase, since=str(ctx.end.get("lastTransitionTime") or ""))
    needed = max(wanted, ctx.sizes[constants.TRAINER], 0 if ctx.may_have_pods else trainer.min_instance)
    if not ctx.job.spec.suspend:
        return Size(wanted, _running_trainers(ctx), needed, trainer.ceiling)
    stored = ctx.condition(constants.SUSPENDED) or {}
    since = str(stored.get("lastTransitionTime") or "")
    return Size(wanted, _running_trainers(ctx), needed, trainer.ceiling, Phase.SUSPENDED, since)


def _needs(ctx: _Context) -> Iterator[Need]:
    """Its pods without a node; before it has pods, those of its minimum; while it could be larger, one trainer."""
    job, cluster = ctx.job, ctx.objects.cluster
    waiting = pending(cluster, TRAININGJOB, *job.key) if cluster is not None else []
    counts = (
        {constants.TRAINER: 1} if ctx.may_have_pods else {**ctx.sizes, constants.TRAINER: job.spec.trainer.min_instance}
    )
    yield from waiting or [Need(role_shape(job, role), count, role) for role, count in counts.items() if count]


def _summary(ctx: _Context, size: Size) -> str:
    if ctx.end is not None:
        return messages.job_ended(size, str(ctx.end.get("message") or ""))
    return messages.job_size(size, ctx.job.spec.trainer.min_instance)
