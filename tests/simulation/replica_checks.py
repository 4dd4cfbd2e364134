"""Checks that each multi-host replica is complete, being created, or deleted as a whole (RM:I6).

Follows every host in the store and records of each replica whether it was ever complete and whether it lost a host by other
causes than the operator. From that follow whether the operator may delete a host that is in no `workersToDelete`, and which
replicas are incomplete in the final state.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from simulation.desired_state import DesiredState
from simulation.pod_tracker import PodTracker, TrackedPod


class ReplicaChecks:
    """Hosts and completeness of all replicas, deleted ones included."""

    def __init__(self, pod_tracker: PodTracker) -> None:
        self._pod_tracker = pod_tracker
        self._hosts: dict[tuple[str, str], dict[str, TrackedPod]] = defaultdict(dict)
        """(owner uid, replica) -> all hosts it ever had, by uid."""
        self._complete: set[tuple[str, str]] = set()
        self._broken: set[tuple[str, str]] = set()
        """Replicas that lost a host by other causes than the operator."""
        self._delete_requested: set[str] = set()

    def record_pod(self, owner_uid: str, change: Any) -> None:
        """A pod has changed; the pod tracker has recorded it already."""
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
        """Whether the operator may delete it with its replica, or because the replica was never complete."""
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
        """The first incomplete replica of a cluster in its final state; empty if all are complete."""
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
