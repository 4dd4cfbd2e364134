"""What has to be written so that a TrainingJob is what its spec and its size say?

Takes the job, what is observed of it and the settings, and lists the writes in order: service, membership, trainers that
go, pods made anew, then master, parameter servers and trainers, each role when the one before is ready. It is a pure
function: the same input gives the same plan, and once everything asked for is there the plan is empty. It never touches
the spec, because sizes come from the sharing pass; what has to outlive a crash (who was counted, how the job ended, that
a gang gave up) stands in the status before anything is deleted for it. Called by the controller; rules TJ §3, §6, §7, D5.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Final

import msgspec

from raytide.api import training_names as names
from raytide.api.actions import MOST_WRITES, Action, Create, Delete, Patch, Remark
from raytide.api.config import JobConfig
from raytide.api.job_pod import JobPod
from raytide.api.job_shape import role_spec
from raytide.api.limits import MOST_BUILT_BYTES
from raytide.api.merge_patch import merge_difference
from raytide.api.meta import CONFIG_MAPS, PODS, SERVICES, TRAININGJOBS
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.deciding.lifecycle import (
    chance_left_s,
    deadline_left_s,
    gang_time_left_s,
    has_minimum,
    is_over,
    life_left_s,
)
from raytide.trainingjob.deciding.ranks import is_alive
from raytide.trainingjob.deciding.situation import Situation, situation_of
from raytide.trainingjob.deciding.todo import JOB_SLOT, MEMBERSHIP_SLOT, NOTHING, SERVICE_SLOT, SOON_S, Plan, sooner
from raytide.trainingjob.objects import (
    build_membership,
    build_pods,
    build_service,
    membership_name,
    pod_name,
    service_name,
)
from raytide.trainingjob.observed import Observed
from raytide.trainingjob.telling.remarks import remarks_of
from raytide.trainingjob.telling.waiting import late_text
from raytide.trainingjob.validation import violations, warnings

__all__ = ["Plan", "plan"]


def plan(job: TrainingJob, observed: Observed, config: JobConfig) -> Plan:
    """Walk through the steps; each may add writes, and may be the last."""
    now = situation_of(job, observed, config)
    todo = NOTHING
    for step in STEPS:
        todo += step(now)
        if todo.is_last:
            break
    return replace(todo, config=config)


# --- steps before anything runs --------------------------------------------------------------------------------------


def leave_to_garbage_collection(now: Situation) -> Plan:
    """Whoever deletes a job needs nothing from us: every child has an owner reference (D14)."""
    return Plan(is_reported=False, is_last=True) if now.job.metadata.deletion_timestamp else NOTHING


def clean_up_after_the_end(now: Situation) -> Plan:
    """What still runs goes; pods that ended stay for their logs, until the job goes with them (TJ §7.12)."""
    if not is_over(now.job.status):
        return NOTHING
    left_s = life_left_s(now.job, now.observed)
    if left_s is not None and left_s <= 0:
        return Plan(actions=(_delete_job(now.job),), is_last=True)
    running = _end(filter(is_alive, now.observed.pods), "the job has ended")
    return running + Plan(look_again_in=left_s, is_last=True)


def refuse_invalid(now: Situation) -> Plan:
    """An invalid spec stops every write, and says so; what runs keeps running."""
    faults = violations(now.job)
    remarks = tuple(Remark(names.INVALID_SPEC, str(fault)) for fault in (*faults, *warnings(now.job, now.config.gpus)))
    return Plan(violations=faults, remarks=remarks, is_last=bool(faults))


def tell_what_happened(now: Situation) -> Plan:
    """Events of what the status does not say yet; a status with news in it is written soon."""
    return Plan(
        remarks=remarks_of(now),
        look_again_in=sooner(SOON_S if now.counts.fresh else None, now.counts.look_again_in),
    )


def end_when_decided(now: Situation) -> Plan:
    """The end is in the status before anything is deleted for it; until then nothing new begins."""
    if now.verdict is not None:
        return Plan(look_again_in=SOON_S, is_last=True)
    return Plan(look_again_in=deadline_left_s(now.job, now.observed))


def end_suspended(now: Situation) -> Plan:
    """All pods of a suspended job go, with the grace that their spec gives them.

    An invalid spec does not stop that: whoever suspended the job waits for its room.
    """
    return _end(filter(is_alive, now.observed.pods), "the job is suspended") if now.job.spec.suspend else NOTHING


def hold_while_suspended(now: Situation) -> Plan:
    """A suspended job gets nothing."""
    return Plan(is_last=now.job.spec.suspend)


def hold_gang(now: Situation) -> Plan:
    """A gang has no pods before it is admitted (TJ §3 row 11); one that gave its room back has none any more."""
    if now.may_have_pods:
        return NOTHING
    victims = filter(is_alive, now.observed.pods) if now.has_given_back else ()
    return replace(_end(victims, "the gang gives its room back"), is_last=True)


def give_up_late_start(now: Situation) -> Plan:
    """A job whose minimum does not start in time holds room for nothing (TJ §6: PaddleCloud #258; FD:SH-B14)."""
    left_s = gang_time_left_s(now.job, now.observed) if now.is_gang else chance_left_s(now.job, now.observed)
    if left_s is None or has_minimum(now.job, now.observed, now.counts):
        return NOTHING
    if left_s > 0:
        return Plan(look_again_in=left_s)
    return Plan(
        remarks=(Remark(names.GANG_TIMEOUT, late_text(now), action="GiveBack"),),
        is_gang_late=True,
        look_again_in=SOON_S,
        is_last=True,
    )


# --- what a job needs besides pods -----------------------------------------------------------------------------------


def ensure_service(now: Situation) -> Plan:
    """One headless service, which gives every pod its stable name; created once."""
    name = service_name(now.job)
    if now.observed.service(name) is not None or name in now.observed.foreign_names:
        return NOTHING
    create = Create(
        SERVICES,
        build_service(now.job),
        because=names.CREATED_SERVICE,
        otherwise=names.FAILED_TO_CREATE_SERVICE,
        group=SERVICE_SLOT,
    )
    return replace(_unless_refused(now, SERVICE_SLOT, lambda: [create]), is_continued=True)


def ensure_membership(now: Situation) -> Plan:
    """The live list of members, changed before pods go or come (TJ §7.7, §6: PaddleCloud #411)."""
    manifest = build_membership(now.job, now.size, now.config)
    name = membership_name(now.job)
    found = now.observed.config_map(name)
    if found is None and name in now.observed.foreign_names:
        return NOTHING
    if found is None:
        create = Create(
            CONFIG_MAPS,
            manifest,
            because=names.CREATED_MEMBERSHIP,
            otherwise=names.FAILED_TO_CREATE_MEMBERSHIP,
            group=MEMBERSHIP_SLOT,
        )
        return replace(_unless_refused(now, MEMBERSHIP_SLOT, lambda: [create]), is_continued=True)
    difference = merge_difference(found.content, manifest["data"])
    if not difference or not found.uid:
        return NOTHING
    patch = Patch(
        CONFIG_MAPS,
        found.namespace,
        found.name,
        found.uid,
        {"data": difference},
        because=names.UPDATED_MEMBERSHIP,
        otherwise=names.FAILED_TO_UPDATE_MEMBERSHIP,
        group=MEMBERSHIP_SLOT,
    )
    return _unless_refused(now, MEMBERSHIP_SLOT, lambda: [patch])


# --- who goes --------------------------------------------------------------------------------------------------------


def let_trainers_go(now: Situation) -> Plan:
    """Those beyond the size, first the one that costs least (TJ 7.5; Volcano #2074)."""
    alive = sum(map(is_alive, now.observed.trainers))
    return _end(now.wanted.victims, f"{len(now.wanted.active)} of {alive} trainers are wanted")


def let_pservers_go(now: Situation) -> Plan:
    """Those beyond what the trainers need, the highest index first, when surplus trainers are gone (TJ §3 row 4)."""
    trainers = sum(not pod.is_finished for pod in now.observed.trainers)
    pserver = now.job.spec.pserver
    needed = now.pservers if pserver is None else max(now.pservers, pserver.count_for(trainers))
    surplus = [pod for pod in now.observed.pservers if is_alive(pod) and (pod.index is None or pod.index >= needed)]
    surplus.sort(key=lambda pod: pod.index or 0, reverse=True)
    return _end(surplus, f"{needed} parameter servers are wanted")


def let_needless_master_go(now: Situation) -> Plan:
    """The master of a job that no longer has one."""
    return NOTHING if now.job.has_master else _end(filter(is_alive, now.observed.masters), "the job has no master")


def clear_the_ended(now: Situation) -> Plan:
    """Pods that will be made anew go when the pause after the failure is over, so that logs can be read until then.

    Only those that the status has counted: nobody may be counted never, or twice.
    """
    wait_s = now.counts.wait_s(now.observed.seen_at)
    replaceable = [pod for pod in now.observed.pods if _is_replaceable(now, pod)]
    if not replaceable:
        return NOTHING
    if wait_s > 0:
        return Plan(look_again_in=wait_s)
    return _end(replaceable, "it has ended and is made anew")


def _is_replaceable(now: Situation, pod: JobPod) -> bool:
    if not pod.is_finished or pod.is_terminating or pod.uid not in now.counts.counted:
        return False
    return pod.role != names.TRAINER or (pod.has_failed and pod.index not in now.counts.dead)


# --- who comes -------------------------------------------------------------------------------------------------------


def start_master(now: Situation) -> Plan:
    """One master before anything else (TJ §6: PaddleCloud #399)."""
    return _start(now, names.MASTER, (0,)) if now.job.has_master else NOTHING


def start_pservers(now: Situation) -> Plan:
    """All parameter servers, when the master is ready."""
    return _start(now, names.PSERVER, range(now.pservers)) if _is_master_ready(now) else NOTHING


def start_trainers(now: Situation) -> Plan:
    """Trainers, when everything they talk to is ready.

    Nobody comes in place of somebody who has only been asked to go: were that refused, there would be one too many.
    """
    if not _is_master_ready(now):
        return NOTHING
    ready = {pod.index for pod in now.observed.pservers if is_alive(pod) and pod.is_running_and_ready}
    if not ready.issuperset(range(now.pservers)):
        return NOTHING
    alive = sum(map(is_alive, now.observed.trainers))
    return _start(now, names.TRAINER, now.wanted.active, most=max(0, len(now.wanted.active) - alive))


def _is_master_ready(now: Situation) -> bool:
    is_ready = any(pod.is_running_and_ready for pod in now.observed.masters if is_alive(pod))
    return is_ready or not now.job.has_master


def _start(now: Situation, role: str, indices: Iterable[int], most: int = MOST_WRITES) -> Plan:
    """Those that are missing and whose name nobody has any more (kubernetes #115844), not even an earlier job.

    None before the service and the membership are there: under the name of somebody else's they would read strangers.
    Those beyond `most` come in the next pass, and so do those beyond the budget of a plan: one role starts at a time.
    """
    if not _has_meeting_place(now):
        return NOTHING
    taken = {pod.name for pod in now.observed.of(role)} | now.observed.foreign_names
    free = (index for index in indices if pod_name(now.job, role, index) not in taken)
    missing = list(islice(free, MOST_WRITES + 1))
    most = min(most, _most_built(now, role))
    if not missing:
        return NOTHING
    wait_s = now.counts.wait_s(now.observed.seen_at)
    if wait_s > 0:
        return Plan(look_again_in=wait_s)
    todo = _unless_refused(now, role, lambda: _create_pods(now, role, missing[:most]))
    return replace(todo, is_continued=len(missing) > most)


STEPS: Final[tuple[Callable[[Situation], Plan], ...]] = (
    leave_to_garbage_collection,
    clean_up_after_the_end,
    end_suspended,
    refuse_invalid,
    tell_what_happened,
    end_when_decided,
    hold_while_suspended,
    hold_gang,
    give_up_late_start,
    ensure_service,
    ensure_membership,
    let_trainers_go,
    let_pservers_go,
    let_needless_master_go,
    clear_the_ended,
    start_master,
    start_pservers,
    start_trainers,
)


def _most_built(now: Situation, role: str) -> int:
    """How many pods of a role one plan may build: each is built for itself, and nobody else is served meanwhile."""
    spec, said = now.job.spec, role_spec(now.job, role)
    written = [
        said.env,
        said.envs,
        said.template,
        said.tolerations,
        said.node_selector,
        spec.volumes,
        spec.volume_mounts,
    ]
    return max(1, min(MOST_WRITES, MOST_BUILT_BYTES // len(msgspec.json.encode(written))))


def _has_meeting_place(now: Situation) -> bool:
    """Whether the job's own service and membership are there, and not an earlier job's or somebody else's."""
    service, membership = service_name(now.job), membership_name(now.job)
    return now.observed.service(service) is not None and now.observed.config_map(membership) is not None


# --- what the steps share --------------------------------------------------------------------------------------------


def _unless_refused(now: Situation, group: str, writes: Callable[[], Iterable[Action]]) -> Plan:
    """The writes, or only the moment to come back when the API refused the last ones a short while ago."""
    refusal = now.observed.refusal_of(group)
    return Plan(actions=tuple(writes())) if refusal is None else Plan(look_again_in=refusal.retry_in_s)


def _create_pods(now: Situation, role: str, indices: Iterable[int]) -> Iterable[Create]:
    for manifest in build_pods(now.job, role, indices, now.size, now.config):
        yield Create(PODS, manifest, because=names.CREATED_POD, otherwise=names.FAILED_TO_CREATE_POD, group=role)


def _end(victims: Iterable[JobPod], why: str) -> Plan:
    """Deletes for pods that exist; a pod that may or may not exist is only named."""
    chosen = tuple(victims)
    return Plan(
        actions=tuple(_delete(pod, why) for pod in chosen if pod.uid),
        unwanted=frozenset(pod.name for pod in chosen if not pod.uid),
    )


def _delete(pod: JobPod, why: str) -> Delete:
    return Delete(PODS, pod.namespace, pod.name, pod.uid, names.DELETED_POD, names.FAILED_TO_DELETE_POD, pod.role, why)


def _delete_job(job: TrainingJob) -> Delete:
    metadata, ttl_s = job.metadata, job.spec.ttl_seconds_after_finished
    why = f"it ended more than {ttl_s} s ago"
    return Delete(
        TRAININGJOBS,
        metadata.namespace,
        metadata.name,
        metadata.uid,
        names.DELETED_JOB,
        names.FAILED_TO_DELETE_JOB,
        JOB_SLOT,
        why,
    )
