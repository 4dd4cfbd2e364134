"""What does a job wait for, in words for people?

Takes a job's situation, gives the one condition `Waiting` that answers "why is it not running, and why is it not larger":
what the sharing pass says about room, what the API refused, what keeps a pod from starting, the pause after a failure,
the order of the start. It is True while the job lacks something it should have, False with a reason where it runs and
could be larger, and None when there is nothing to say. Called by plan for events and by status (TJ §6, §7.8, §8).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from raytide.api import training_names as names
from raytide.api.conditions import Saying, find_condition, timestamp
from raytide.api.job_admission import gang_timeouts, is_forbidden, may_be_admitted_at
from raytide.api.job_pod import JobPod
from raytide.api.pod_trouble import Cause, trouble_of, trouble_of_refusal
from raytide.api.wording import cut
from raytide.trainingjob.construction.addresses import membership_name, pod_name, service_name
from raytide.trainingjob.deciding.lifecycle import has_minimum, refused_roles, start_limit_s
from raytide.trainingjob.deciding.ranks import is_alive
from raytide.trainingjob.deciding.situation import Situation

NOT_ADMITTED: Final = "NotAdmitted"
BACKING_OFF: Final = "BackingOff"
WAITING_FOR_MASTER: Final = "WaitingForMaster"
WAITING_FOR_PSERVERS: Final = "WaitingForPservers"
POD_TERMINATING: Final = "PodTerminating"
MOST_WORDS: Final = 500
"""Characters of a cause inside another sentence."""
MOST_LOOKED_AT: Final = 1000
"""Names of one role that are compared with those that others have."""
IN_PASSING: Final = frozenset({BACKING_OFF, WAITING_FOR_MASTER, WAITING_FOR_PSERVERS, POD_TERMINATING})
"""What ends by itself: shown while it lasts, but no event."""


@dataclass(frozen=True, slots=True)
class _Lack:
    reason: str
    message: str
    is_below: bool = True


def waiting_of(now: Situation) -> Saying | None:
    """What to say; None for a job that lacks nothing, is suspended or has ended."""
    if now.job.spec.suspend:
        return None
    lack = _not_let_in(now) if not now.may_have_pods else _of_pods(now)
    if lack is None:
        return None
    return Saying(names.WAITING, status=lack.is_below, reason=lack.reason, message=lack.message)


def late_text(now: Situation) -> str:
    """Why a gang gives its room back, with what kept its pods from starting: once they are gone nobody can look."""
    lack = _refused(now) or _taken(now) or _troubled(now) or _in_order(now)
    why = f" ({cut(lack.message, MOST_WORDS)})" if lack else ""
    limit_s = int(start_limit_s(now.job, now.observed))
    return f"its pods did not all run within {limit_s} s{why}; they give their room back"


def _not_let_in(now: Situation) -> _Lack:
    """A gang without pods."""
    waiting = now.record.waiting if now.record is not None else None
    before = find_condition(now.job.status.get("conditions") or (), names.ADMITTED) or {}
    until = may_be_admitted_at(now.job) if now.has_given_back and gang_timeouts(now.job) > 0 else None
    if until is not None and (until > now.observed.seen_at or waiting is None):
        words = f"{before.get('message', '')}; it is not admitted again before {timestamp(until)}"
        return _Lack(names.GANG_TIMEOUT, words.lstrip("; "))
    if now.has_given_back and is_forbidden(now.job):
        words = f"{before.get('message', '')}; it begins again when all of its minimum has free room, and takes none from others"
        return _Lack(Cause.FORBIDDEN.value, words.lstrip("; "))
    if waiting is not None:
        return _Lack(waiting.reason, waiting.message)
    return _Lack(NOT_ADMITTED, "it begins when all of its minimum has room; the sharing pass has not admitted it yet")


def _of_pods(now: Situation) -> _Lack | None:
    waiting = now.record.waiting if now.record is not None else None
    is_small = not has_minimum(now.job, now.observed, now.counts)
    if refused_roles(now.observed) and is_small:
        return _refused(now)  # what the API server says is more than what the sharing pass makes of it
    if waiting is not None and waiting.is_below_minimum and is_small:
        return _Lack(waiting.reason, waiting.message)
    found = _refused(now) or _taken(now) or _troubled(now) or _backing_off(now) or _in_order(now)
    if found is None and waiting is not None and not waiting.is_below_minimum:
        return _Lack(waiting.reason, waiting.message, is_below=False)
    return found


def _refused(now: Situation) -> _Lack | None:
    """What the API said no to."""
    if not now.observed.refusals:
        return None
    refusal = now.observed.refusals[0]
    trouble = trouble_of_refusal("", refusal.message)
    return _Lack(trouble.cause.value, f"{refusal.group.strip('()')}: {trouble.detail}")


def _taken(now: Situation) -> _Lack | None:
    """Children that another object of this name has left, or somebody's that carry our label."""
    job, roster = now.job, now.wanted.active
    needed = [service_name(job), membership_name(job), *([pod_name(job, names.MASTER)] if job.has_master else ())]
    needed += [pod_name(job, names.PSERVER, index) for index in range(min(now.pservers, MOST_LOOKED_AT))]
    needed += [pod_name(job, names.TRAINER, index) for index in roster[:MOST_LOOKED_AT]]
    taken = [name for name in needed if name in now.observed.foreign_names] if now.observed.foreign_names else []
    if not taken:
        return None
    more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
    return _Lack(
        Cause.NAME_TAKEN.value,
        f"{taken[0]}{more} belongs to another object, perhaps an earlier job; waits until it is gone",
    )


def _troubled(now: Situation) -> _Lack | None:
    """What keeps pods from starting: the commonest cause, with the words of Kubernetes."""
    wanted = {names.MASTER: int(now.job.has_master), names.PSERVER: now.pservers, names.TRAINER: len(now.wanted.active)}
    for role in names.ROLES:
        pods = [pod for pod in now.observed.of(role) if is_alive(pod) and pod not in now.wanted.victims]
        if lack := _trouble_of_role(role, pods, wanted[role]):
            return lack
    return None


def _trouble_of_role(role: str, pods: Sequence[JobPod], wanted: int) -> _Lack | None:
    troubles = [trouble for pod in pods if (trouble := trouble_of(pod))]
    if not troubles:
        return None
    worst, number = Counter(trouble.cause for trouble in troubles).most_common(1)[0]
    detail = next(trouble.detail for trouble in troubles if trouble.cause is worst)
    return _Lack(worst.value, f"{role}: {number} of {wanted} cannot start: {detail}")


def _backing_off(now: Situation) -> _Lack | None:
    """The pause after a failure; the moment is named, because a number of seconds would change all the time."""
    until = now.counts.next_try_at
    if until is None or until <= now.observed.seen_at or not _lacks_pods(now):
        return None
    times = now.counts.in_a_row
    times_text = "a failure" if times == 1 else f"{times} failures in a row"
    last = f" ({now.counts.fresh[-1]})" if now.counts.fresh else ""
    return _Lack(BACKING_OFF, f"after {times_text}{last} the next try is made at {timestamp(until)}")


def _lacks_pods(now: Situation) -> bool:
    alive = [pod for pod in now.observed.pods if is_alive(pod)]
    return len(alive) < int(now.job.has_master) + now.pservers + len(now.wanted.active)


def _in_order(now: Situation) -> _Lack | None:
    """Whom the next role waits for (TJ §6, #399)."""
    observed = now.observed
    has_trainers = any(map(is_alive, observed.trainers))
    if now.job.has_master and not any(pod.is_running_and_ready for pod in observed.masters if is_alive(pod)):
        return None if has_trainers else _Lack(WAITING_FOR_MASTER, "the other pods wait until the master is ready")
    ready = sum(pod.is_running_and_ready for pod in observed.pservers if is_alive(pod))
    if ready < now.pservers and not has_trainers:
        message = f"trainers wait until all parameter servers are ready ({ready} of {now.pservers} are)"
        return _Lack(WAITING_FOR_PSERVERS, message)
    there = {pod.index for pod in observed.trainers if is_alive(pod)}
    going = sorted(
        pod.name for pod in observed.trainers if pod.is_terminating and pod.index in set(now.wanted.active) - there
    )
    if going:
        return _Lack(POD_TERMINATING, f"{going[0]} is made anew when the old one is gone ({len(going)} so)")
    return None
