"""Is a multi-host replica complete, being completed, or removed as a whole?

Watches every host in the store and remembers of each replica whether it was ever complete and whether it has lost a host
without the operator's doing. From that it says whether the operator had a reason to end a host nobody named, and what is
wrong with the replicas once everything is said to be as wanted. Asked by the judge and the end-state oracle; rule RM:I6.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from simulation.desired_state import DesiredState
from simulation.pod_tracker import PodTracker, TrackedPod


class ReplicaChecks:
    """What is known of every replica that ever was."""

    def __init__(self, pod_tracker: PodTracker) -> None:
        self._pod_tracker = pod_tracker
        self._hosts: dict[tuple[str, str], dict[str, TrackedPod]] = defaultdict(dict)
        """(owner uid, replica) -> everybody who ever was a host of it, by uid."""
        self._complete: set[tuple[str, str]] = set()
        self._broken: set[tuple[str, str]] = set()
        """Replicas that have lost a host without the operator's doing."""
        self._delete_requested: set[str] = set()

    def record_pod(self, owner_uid: str, change: Any) -> None:
        """A pod has changed; the census has seen it already."""
        uid, replica = change.entry.uid, change.entry.labels.get("ray.io/worker-group-replica-name", "")
        if not replica:
            return
        group = change.entry.labels.get("ray.io/group", "")
        live = [host for host in self._pod_tracker.live_pods(owner_uid, group) if host.replica == replica]
        self._hosts[owner_uid, replica].update({host.uid: host for host in live})
        if live and len({host.host for host in live}) == int(live[0].num_of_hosts or 0):
            self._complete.add((owner_uid, replica))
        if uid not in self._delete_requested and all(host.uid != uid for host in live):
            self._broken.add((owner_uid, replica))

    def may_delete_host(self, owner_uid: str, host: TrackedPod, desired_states: Iterable[DesiredState]) -> bool:
        """Whether it goes with its replica, or nobody could use that yet; the operator asks for its end."""
        self._delete_requested.add(host.uid)
        key = owner_uid, host.replica
        if not host.replica:
            return False
        if key in self._broken or key not in self._complete:
            return True
        names = {each.name for each in self._hosts[key].values()}
        sizes = {str(desired.hosts.get(host.group, 1)) for desired in desired_states}
        return any(names & desired.to_delete for desired in desired_states) or sizes != {host.num_of_hosts}

    @staticmethod
    def find_incomplete_replica(members: Iterable[TrackedPod], desired: DesiredState) -> str:
        """What is wrong with the replicas of one cluster that is at rest; empty when they are whole."""
        hosts: dict[tuple[str, str], list[str]] = defaultdict(list)
        for pod in members:
            if desired.hosts.get(pod.group, 1) > 1:
                hosts[pod.group, pod.replica].append(pod.host)
            elif pod.replica:
                return f"{pod.name} is a host of {pod.replica}, and its group has one host each"
        for (group, replica), found in hosts.items():
            if sorted(found, key=int) != [str(index) for index in range(desired.hosts[group])]:
                return f"replica {replica or '?'} of {group} has the hosts {sorted(found)}"
        return ""
