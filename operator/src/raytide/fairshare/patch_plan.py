"""Patch plan: what is written on each job to carry out a division.

Input: the jobs, the pool they were in, their trainers and the division. Output: one `JobPatch` per job whose size or
record changes: scale-downs first, then scale-ups, then messages only. A scale-down names its victims, a scale-up its
planned nodes. A scale-up that is not released is not written, and the released part of one waits for the rest, for
`GROWTH_HELD_S` at most; a message that only became outdated is rewritten when the last one is 30 s old; a size that
another client wrote is recorded as `Requested`, and the granted size replaces one that is not granted in full. Pure; carried out
by reconciler.py (TJ §3 rows 19 and 21, §4 step 4).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from raytide.api import trainingjob_constants
from raytide.api.config import RESERVATION_S
from raytide.api.gang_admission import gang_timeouts, is_admitted, may_await_nodes_at
from raytide.api.meta import Key, Manifest
from raytide.api.sharing_record import (
    ADMITTED,
    GROWING,
    MAX_PLACEMENTS,
    MAX_RECEIVERS,
    MAX_RESIZES,
    REACHING_MINIMUM,
    REQUESTED,
    ResizeNote,
    SharingRecord,
    WaitingNote,
    encode_record,
)
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare import messages
from raytide.fairshare.algorithm.model import (
    NODES_HELP,
    Allocation,
    ClusterSnapshot,
    Participant,
    ParticipantId,
    Resize,
    Waiting,
)
from raytide.fairshare.eligibility import (
    admission_waits_until,
    is_eligible,
    ordered_replicas,
    reservation_turn,
    reserved_since,
    size_for_trainers,
)
from raytide.fairshare.participants import id_of
from raytide.fairshare.pod_placement import NO_PODS, RolePods
from raytide.fairshare.size_requests import next_note, requested_size
from raytide.fairshare.victims import name_victims

WORDS_LAST_S: Final = 30.0
"""Seconds after which a message with the same reason and other numbers is written again."""

GROWTH_HELD_S: Final = 10
"""Seconds for which the released part of a scale-up waits at most for what terminating pods still hold. The pods of one scale-down
terminate one after the other, and each scale-up changes the membership of a training and starts a cooldown in which others
would get the rest (FD:TJ3-9). With a minute the capacity that is idle meanwhile was 4 % of a busy cluster (bench PUBLISHED)."""


@dataclass(frozen=True, slots=True)
class JobPatch:
    """What one patch writes on one job."""

    job: TrainingJob
    """The version of the job that the decision was made from."""
    replicas: int | None
    """None: the spec stays as it is."""
    record: SharingRecord
    grows_by: int = 0
    """Negative for a scale-down, 0 for messages only."""
    in_full: str = ""
    """The message of the resize with names of other namespaces, for the operator's log only (FD:SEC-F7)."""

    def patch(self, version: str) -> Manifest:
        """The body of a merge patch that the API server rejects unless the job still has this resourceVersion."""
        annotations = {trainingjob_constants.SHARING_ANNOTATION: encode_record(self.record)}
        body: Manifest = {"metadata": {"resourceVersion": version, "annotations": annotations}}
        if self.replicas is not None:
            body["spec"] = {"trainer": {"replicas": self.replicas}}
        return body

    def still_holds_for(self, job: TrainingJob) -> bool:
        """Whether a newer version of the job differs in nothing that the decision was made from."""
        old = self.job
        return (
            job.metadata.uid == old.metadata.uid
            and job.metadata.generation == old.metadata.generation
            and _text(job) == _text(old)
            and is_eligible(job) == is_eligible(old)
        )


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """Everything to write, in order."""

    patches: tuple[JobPatch, ...] = ()
    has_stale_message: bool = False
    """Whether a message is slightly out of date and has to be rewritten later."""
    changes_at: datetime | None = None
    """When the first part of a scale-up may be written without the rest; None if there is none."""


@dataclass(frozen=True, slots=True)
class _Uids:
    """What receivers are called in a record that users of other namespaces may read."""

    of_jobs: Mapping[ParticipantId, str]
    of_pods: Mapping[str, str]
    """Name of a pod -> uid of its owner."""

    def receivers_of(self, resize: Resize) -> tuple[str, ...]:
        """At most MAX_RECEIVERS; those without a uid are left out."""
        found = [self.of_jobs.get(id_, "") for id_ in resize.receivers]
        found += [self.of_pods.get(name, "") for name in resize.for_pods]
        return tuple(dict.fromkeys(filter(None, found)))[:MAX_RECEIVERS]


class _Later(Enum):
    LATER = "only a message that may be rewritten later"


_LATER: Final = _Later.LATER


def plan_patches(
    jobs: Iterable[TrainingJob],
    pool: ClusterSnapshot,
    division: Allocation,
    now: datetime,
    *,
    trainers: Mapping[ParticipantId, RolePods],
    reservation_s: float = RESERVATION_S,
) -> PatchPlan:
    """The orders that carry out the division; `trainers` are those of the jobs in the pool."""
    now = now.replace(microsecond=0)
    jobs = tuple(jobs)
    participants = {each.id: each for each in pool.participants}
    resizes: dict[ParticipantId, list[Resize]] = {}
    for resize in division.resizes:
        resizes.setdefault(resize.id, []).append(resize)
    waiting = {each.id: each for each in division.waiting}
    uids = _Uids(
        {id_of(job.key): job.metadata.uid for job in jobs},
        {pods.name: pods.owner_uid for pods in pool.external_pods if pods.owner_uid},
    )
    grow_at = {
        id_of(job.key): moment
        for job in jobs
        if (steps := resizes.get(id_of(job.key))) and (moment := _growth_held_until(job.record, steps, now))
    }
    for id_ in grow_at:
        resizes[id_] = [
            replace(each, is_released=each.is_released and each.after < each.before) for each in resizes[id_]
        ]
    found = [
        _job_patch(
            job,
            participants.get(id_of(job.key)),
            resizes.get(id_of(job.key), []),
            waiting,
            trainers=trainers.get(id_of(job.key), NO_PODS),
            uids=uids,
            now=now,
            reservation_s=reservation_s,
            has_node_autoscaler=pool.options.has_node_autoscaler,
        )
        for job in jobs
    ]
    places = {id_: place for place, id_ in enumerate(resizes)}

    def place(order: JobPatch) -> tuple[int, int, Key]:
        return _phase(order), places.get(id_of(order.job.key), len(places)), order.job.key

    given = sorted((order for order in found if isinstance(order, JobPatch)), key=place)
    return PatchPlan(
        tuple(given),
        has_stale_message=any(order is _LATER for order in found),
        changes_at=min(grow_at.values(), default=None),
    )


def _growth_held_until(record: SharingRecord | None, resizes: list[Resize], now: datetime) -> datetime | None:
    """Until when the released part of its growth waits for the rest; None: it does not wait.

    A minimum is reached at once, and a part is never held back for longer: pods may terminate slowly, or never.
    """
    growth = [each for each in resizes if each.after > each.before]
    has_both = any(each.is_released for each in growth) and not all(each.is_released for each in growth)
    if not has_both or any(each.reason in (ADMITTED, REACHING_MINIMUM) for each in growth):
        return None
    until = _promised_since(record, now) + timedelta(seconds=GROWTH_HELD_S)
    return until if until > now else None


def _promised_since(record: SharingRecord | None, now: datetime) -> datetime:
    """Since when it waits for growth that was planned; now if it does not, or if a clock that was set back recorded it."""
    since = record.waiting.promised_since if record is not None and record.waiting is not None else None
    return now if since is None else min(since, now)


def _phase(order: JobPatch) -> int:
    return 0 if order.grows_by < 0 else 1 if order.grows_by > 0 else 2


def _job_patch(
    job: TrainingJob,
    participant: Participant | None,
    resizes: list[Resize],
    waiting: Mapping[ParticipantId, Waiting],
    *,
    trainers: RolePods,
    uids: _Uids,
    now: datetime,
    reservation_s: float,
    has_node_autoscaler: bool,
) -> JobPatch | _Later | None:
    if participant is None:
        return _held_back(job, now)
    record, ordered, requested = job.record, _desired_replicas(job, participant), requested_size(job)
    live = sum(not pod.is_terminating for pod in (*trainers.kept, *trainers.released))
    sized: list[Resize] = []
    for each in resizes:
        before = sized[-1].after if sized else ordered
        sized.append(replace(each, before=before, after=size_for_trainers(job, each.after, live)))
    resizes, planned = sized, resizes
    released = _released(resizes)
    after = released[-1].after if released else ordered
    is_open = _is_open(participant, resizes[len(released) :])
    if after > 0 or participant.current > 0 or not participant.is_gang:
        changed = _begun(job, record, participant, ordered, released=released, uids=uids, now=now)
        answered = requested if participant.grows_to is not None and not is_open else None
        changed = replace(changed, request=next_note(job, after, answered, now))
        if released:
            victims = name_victims(trainers, released, planned[len(released) - 1].after)
            changed = replace(
                changed, victims=victims, placements=_placements(released), core_nodes=_core_nodes(released)
            )
        elif record is not None and record.replicas == ordered:
            changed = replace(
                changed, victims=record.victims, placements=record.placements, core_nodes=record.core_nodes
            )
    else:
        changed = SharingRecord(uid=job.metadata.uid, replicas=0, resizes=record.resizes if record else ())
    note = _waiting_note(waiting.get(participant.id), resizes[len(released) :], participant)
    if note is not None and note.reason == trainingjob_constants.AWAITING_CAPACITY:
        note = replace(note, promised_since=now if released else _promised_since(record, now))
    if note is not None and note.is_below_minimum:
        note = _with_reservation(note, waiting.get(participant.id), record, now, reservation_s)
        at = None if participant.may_await_nodes or note.reason not in NODES_HELP else may_await_nodes_at(job)
        if has_node_autoscaler and at is not None:
            note = replace(note, message=messages.awaits_nodes(note.message, at))
    is_written = changed.replicas != job.spec.trainer.replicas and (after > 0 or not participant.is_gang)
    if requested is not None and (is_open or participant.grows_to is None):
        is_written = after > requested  # the request stays in the spec until it is answered
    in_full = released[-1].full_message if released else ""
    order = JobPatch(job, changed.replicas if is_written else None, changed, after - ordered, in_full)
    return _if_changed(order, record, note, now)


def _desired_replicas(job: TrainingJob, participant: Participant) -> int:
    """The ordered size; 0 for a gang that has not started."""
    is_waiting = participant.is_gang and participant.current == 0 and participant.ceiling > 0
    return 0 if is_waiting else ordered_replicas(job)


def _is_open(participant: Participant, promised: list[Resize]) -> bool:
    """Whether it is not known yet how much of a request is granted: its pods are not those of its size, or terminating pods hold it."""
    return participant.grows_to is not None and (bool(promised) or not participant.is_settled)


def _released(resizes: list[Resize]) -> list[Resize]:
    """The resizes before the first that has to wait."""
    count = next((i for i, resize in enumerate(resizes) if not resize.is_released), len(resizes))
    return resizes[:count]


def _begun(
    job: TrainingJob,
    record: SharingRecord | None,
    participant: Participant,
    ordered: int,
    *,
    released: list[Resize],
    uids: _Uids,
    now: datetime,
) -> SharingRecord:
    notes = list(record.resizes) if record else []
    if record is not None and record.replicas != ordered and participant.current > 0 and not _begins(job, record):
        notes.append(
            ResizeNote(
                now,
                record.replicas,
                ordered,
                REQUESTED,
                messages.size_requested(record.replicas, ordered, ordered),
            )
        )
    notes += [_resize_note(resize, uids, now) for resize in released]
    requested = requested_size(job)
    if requested is not None and participant.grows_to is not None and released and released[-1].reason == GROWING:
        words = messages.size_requested(notes[-1].before, notes[-1].after, requested)
        notes[-1] = replace(notes[-1], reason=REQUESTED, message=words)
    after = released[-1].after if released else ordered
    is_new = participant.is_gang and not is_admitted(job, record)
    return SharingRecord(
        uid=job.metadata.uid,
        replicas=after,
        pservers=_pservers(job, after),
        is_admitted=True,
        admitted_at=now if is_new or record is None else record.admitted_at,
        resizes=tuple(notes[-MAX_RESIZES:]),
    )


def _placements(released: list[Resize]) -> dict[str, int]:
    """Where the trainers of a scale-up are planned."""
    if released[-1].after <= released[0].before:
        return {}
    planned = Counter[str]()
    for resize in released:
        planned.update(resize.nodes)
    return dict(sorted((+planned).items()))


def _core_nodes(released: list[Resize]) -> Mapping[str, Mapping[str, int]]:
    """Where the pods are planned that a job needs before its trainers start."""
    return next((resize.core_nodes for resize in released if resize.core_nodes), {})


def _begins(job: TrainingJob, record: SharingRecord) -> bool:
    """Whether the record is from before the job could have pods: no other size was requested then."""
    return record.replicas == 0 and job.spec.trainer.min_instance > 0


def _resize_note(resize: Resize, uids: _Uids, now: datetime) -> ResizeNote:
    is_readable = resize.for_id is not None and resize.for_id.namespace == resize.id.namespace
    for_job = str(resize.for_id) if is_readable else ""
    receivers = uids.receivers_of(resize)
    return ResizeNote(now, resize.before, resize.after, resize.reason, resize.message, for_job, receivers)


def _pservers(job: TrainingJob, trainers: int) -> int | None:
    pserver = job.spec.pserver
    return pserver.count_for(trainers) if pserver is not None and pserver.is_by_ratio else None


def _waiting_note(waiting: Waiting | None, promised: list[Resize], participant: Participant) -> WaitingNote | None:
    if promised:  # resizes after an unreleased one do not matter yet
        first = promised[0]
        return WaitingNote(
            trainingjob_constants.AWAITING_CAPACITY,
            messages.awaiting_capacity(first.message),
            first.before < participant.floor,
        )
    if waiting is None:
        return None
    return WaitingNote(waiting.reason, waiting.message, waiting.is_below_floor, parameters=waiting.parameters)


def _with_reservation(
    note: WaitingNote, waiting: Waiting | None, record: SharingRecord | None, now: datetime, reservation_s: float
) -> WaitingNote:
    """The note with the beginning of the first reservation, also while it has lapsed, and the end and nodes of the present one."""
    nodes = waiting.reserved_nodes if waiting is not None else ()
    since = reserved_since(record, now) or (now if nodes else None)
    if not nodes or since is None:
        return replace(note, reserved_since=since)
    message = messages.capacity_reserved(note.message, reservation_turn(since, now, reservation_s).until)
    return replace(note, message=message, reserved_since=since, reserved_nodes=nodes[:MAX_PLACEMENTS])


def _held_back(job: TrainingJob, now: datetime) -> JobPatch | _Later | None:
    """The message of a gang that timed out and is not admitted again yet."""
    until = admission_waits_until(job, now)
    if until is None or not is_eligible(job) or gang_timeouts(job) == 0:
        return None
    record = job.record
    kept = SharingRecord(job.metadata.uid, 0, resizes=record.resizes if record else ())
    words = messages.gang_timed_out(until)
    return _if_changed(JobPatch(job, None, kept), record, WaitingNote(trainingjob_constants.GANG_TIMEOUT, words), now)


def _if_changed(
    order: JobPatch, old: SharingRecord | None, note: WaitingNote | None, now: datetime
) -> JobPatch | _Later | None:
    """The order with its message; None if everything is written already, `_LATER` if the message may wait."""
    record = order.record
    is_same = old is not None and order.replicas is None and replace(record, waiting=old.waiting, at=old.at) == old
    if old is not None and is_same and old.waiting == note:
        return None
    if old is not None and is_same and _may_wait(old, note, now):
        return _LATER
    return replace(order, record=replace(record, waiting=note, at=now))


def _may_wait(old: SharingRecord, note: WaitingNote | None, now: datetime) -> bool:
    """Whether the reason is the same and the written message is recent enough."""
    known = old.waiting
    if known is None or note is None or (known.reason, known.is_below_minimum) != (note.reason, note.is_below_minimum):
        return False
    return old.at is not None and (now - old.at).total_seconds() < WORDS_LAST_S


def _text(job: TrainingJob) -> str | None:
    return job.metadata.annotations.get(trainingjob_constants.SHARING_ANNOTATION)
