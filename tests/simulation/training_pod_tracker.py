"""Pods of TrainingJobs in the store, with the counters of pod_tracker.py.

Grouped by owner and role, with the rank as the index. Used by the invariant checks, the scenarios and the comparison with
the desired state.
"""

from raytide.api import trainingjob_constants as constants
from raytide_sandbox.apiserver.store import Change

from simulation.pod_tracker import ENDED, PodTracker, TrackedPod, decode_pod


class JobPodTracker(PodTracker):
    """The pods that are owned by a TrainingJob; `group` is the role."""

    @staticmethod
    def _tracked_pod(change: Change) -> TrackedPod | None:
        entry = change.entry
        pod = decode_pod(entry.raw)
        owner = next((each for each in pod.metadata.owner_references if each.kind == "TrainingJob"), None)
        if owner is None:
            return None
        is_alive = not entry.is_terminating and pod.status.phase not in ENDED and change.type != "DELETED"
        is_ready = is_alive and any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
        return TrackedPod(
            uid=entry.uid,
            name=change.key.name,
            owner_uid=owner.uid,
            cluster=f"{change.key.namespace}/{owner.name}",
            group=entry.labels.get(constants.ROLE_LABEL, ""),
            index=entry.labels.get(constants.INDEX_LABEL, ""),
            replica="",
            host="",
            num_of_hosts="",
            is_alive=is_alive,
            is_ready=is_ready,
        )

    def with_index(self, owner_uid: str, role: str, index: str) -> list[TrackedPod]:
        """The pods with that index that are in the store, terminating ones included."""
        return [each for each in self.all_pods(owner_uid) if (each.group, each.index) == (role, index)]
