"""Facts about why a TrainingJob does not run or is not larger.

Takes the job, its pods and one cause, and returns the facts that the texts of api/remedies.py name: the pod to look at and the
scheduling gates. The condition `Waiting` (and so its events) and `raytide why` use these functions, so that they name the same
holder and the same cure. Pure and deterministic: the same pods give the same facts, whatever their order. Called by
waiting_condition.py and explain/trainingjob.py (SC:S21).
"""

from collections.abc import Iterable, Sequence

from raytide.api.pod_failure import failing_pod
from raytide.api.remedies import Facts
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_pod import JobPod


def facts_of_contention(job: TrainingJob, writer: str, message: str) -> Facts:
    """Another client writes sizes that fair sharing does not keep; `writer` is its field manager, empty if it is not known."""
    return Facts("TrainingJob", *job.key, message=message, detail=writer or "another client")


def live_pods(pods: Iterable[JobPod]) -> tuple[JobPod, ...]:
    """The pods that count: without those that have ended or are terminating."""
    return tuple(pod for pod in pods if not pod.is_terminating and not pod.is_finished)


def facts_of(job: TrainingJob, pods: Sequence[JobPod], reason: str, message: str, group: str = "") -> Facts:
    """The facts of a cause with that reason and message; `pods` are the live pods of the role, or of all roles."""
    failing = failing_pod(pods, reason)
    gated = min((pod for pod in pods if pod.scheduling_gates), key=lambda pod: pod.name, default=None)
    return Facts(
        "TrainingJob",
        job.key.namespace,
        job.key.name,
        group,
        message,
        failing.name if failing is not None else "",
        ", ".join(gated.scheduling_gates) if gated is not None else "",
    )
