"""What the texts of a diagnosis name about a TrainingJob.

Takes the job's pods and one diagnosis, and returns it with the pod to look at and the scheduling gates. The condition `Waiting`
(and so its events) and `raytide why` use these functions, so that they name the same holder and the same fix. Pure and
deterministic: the same pods give the same diagnosis, whatever their order. Called by waiting_condition.py, conditions.py and
explain/trainingjob.py (SC:S21).
"""

from collections.abc import Iterable, Sequence

from raytide.api import trainingjob_constants as constants
from raytide.api.pod_failure import failing_pod
from raytide.api.sharing_record import RequestNote
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pod import JobPod
from raytide.diagnosis.model import Diagnosis, Workload
from raytide.trainingjob import messages


def workload_of(job: TrainingJob) -> Workload:
    """The job as diagnoses name it."""
    return Workload("TrainingJob", *job.key)


def live_pods(pods: Iterable[JobPod]) -> tuple[JobPod, ...]:
    """The pods that count: without those that have ended or are terminating."""
    return tuple(pod for pod in pods if not pod.is_terminating and not pod.is_finished)


def located(found: Diagnosis, pods: Sequence[JobPod]) -> Diagnosis:
    """A diagnosis about these live pods, with the pod to look at."""
    failing = failing_pod(pods, found.reason)
    gated = min((pod for pod in pods if pod.scheduling_gates), key=lambda pod: pod.name, default=None)
    return found.having(
        pod=failing.name if failing is not None else "",
        gates=", ".join(gated.scheduling_gates) if gated is not None else "",
    )


def contention(note: RequestNote, decided: int) -> Diagnosis:
    """Another client wrote a size, and fair sharing decided on another one."""
    if note.replicas > decided:
        text = messages.replicas_not_granted(note.replicas, note.writer, decided)
    else:
        text = messages.replicas_lowered_again(note.replicas, note.writer)
    reason = constants.REPLICAS_REWRITTEN if note.times > 1 else constants.REPLICAS_DIFFER
    return Diagnosis(reason, message=text).having(writer=note.writer)
