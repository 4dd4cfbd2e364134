"""Invariants that are checked at every write to a TrainingJob and its pods.

The counterpart of invariant_checks.py: records the desired state of every version of a job and which version an operator
read; counts pods and free capacity in the store. Trainers stay within their bounds and are deleted in order and only with a
reason; only the sharing pass writes sizes, not more often than the cooldown of the job, and growth only into free capacity;
a planned deletion is no failure. Rules RM:I3, I5, I7 to I9, I13, I25.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from raytide.api import trainingjob_constants as constants
from raytide.api.quantity import to_millis

from simulation.invariant_checks import InvariantChecks
from simulation.pod_tracker import ENDED
from simulation.simulated_kube import node_of
from simulation.training_desired_state import DesiredJobState, desired_job_state, permanently_failed, record_of
from simulation.training_kube import JOBS, TrainingKube
from simulation.training_pod_tracker import JobPodTracker

CAPACITY_LAG_S = 30.0
"""How long the operator may not have observed a change of an external pod or a node."""
DELETE_BURST_S = 1.0
"""Deletes that were requested within this time may all still be in transit."""
MAX_WRITE_DELAY_S = 12.0
"""From a decision to its commit: 10 s request timeout, 1 s that the record rounds off, and 1 s of latency."""
START_REASONS = ("Admitted", "ReachingMinimum")
GROWTH_REASONS = ("Admitted", "Growing", "Rebalanced")
SHRINK_REASONS = ("Reclaimed", "Rebalanced")


class TrainingJobChecks(InvariantChecks):
    """Desired states and writes of TrainingJobs, for all operators together."""

    plural = "trainingjobs"

    def __init__(
        self, kube: TrainingKube, pod_tracker: JobPodTracker, *, holder: Callable[[], str | None] | None = None
    ) -> None:
        super().__init__(kube, holder=holder)
        self.kube: TrainingKube = kube
        self.pod_tracker = pod_tracker
        self.desired_states: dict[str, list[DesiredJobState]] = defaultdict(list)
        self.names: dict[str, str] = {}
        self._read: dict[str, dict[str, int]] = defaultdict(dict)
        self._generation_read: dict[str, int] = defaultdict(int)
        self._state_of_version: dict[tuple[str, str], int] = {}
        self._allowed_creates: Counter[tuple[str, str]] = Counter()
        self._late_creates: Counter[tuple[str, str]] = Counter()
        self._deleted: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        self._resized_at: dict[str, float] = {}
        self._size_edited_at: dict[str, float] = {}
        """When the size was last edited; its record may be written much later."""
        self._previous: dict[str, Mapping[str, Any]] = {}
        kube.store.subscribe(self._on_job, JOBS)
        kube.store.subscribe(self._on_pod, "pods")

    def _now_s(self) -> float:
        return self.kube._loop.time()

    # --- desired state =----------------------------------------------------------------------------------------------
    def _on_job(self, change: Any) -> None:
        obj = change.entry.shared()
        metadata = obj["metadata"]
        uid, desired = metadata["uid"], desired_job_state(obj)
        desired_states, before = self.desired_states[uid], self._previous.get(uid)
        self.names[uid] = f"{metadata['namespace']}/{metadata['name']}"
        if not desired_states or desired_states[-1] != desired:
            was = desired_states[-1].counts if desired_states else {}
            for role, count in desired.counts.items():
                self._allowed_creates[uid, role] += max(0, count - was.get(role, 0))
            desired_states.append(desired)
        self._state_of_version[uid, metadata["resourceVersion"]] = len(desired_states) - 1
        self._previous[uid] = obj
        if before is not None and record_of(before) != record_of(obj):
            self._check_resize(uid, before, obj)
        elif before is not None and _size_of(before) != _size_of(obj):
            self._size_edited_at[uid] = self._now_s()
        self._check_status(uid, before, obj)

    def record_read(self, identity: str, metadata: dict[str, Any]) -> None:
        """An operator has read a job, in its current or an older version."""
        uid = metadata["uid"]
        self._read[uid][identity] = self._state_of_version[uid, metadata["resourceVersion"]]
        self._generation_read[uid] = max(self._generation_read[uid], metadata["generation"])

    def expect_late_create(self, body: bytes | None) -> None:
        """A create is committed long after its sender gave up, and perhaps after its sender was killed."""
        obj = msgspec.json.decode(body) if body else {}
        if obj.get("kind") == "Pod":
            owner, role = obj["metadata"]["ownerReferences"][0]["uid"], obj["metadata"]["labels"][constants.ROLE_LABEL]
            self._late_creates[owner, role] += 1

    def _possibly_read(self, uid: str) -> list[DesiredJobState]:
        """The desired states that an operator may have read: from the one it read last to the current one."""
        return self.desired_states[uid][min(self._read[uid].values(), default=0) :]

    # --- pods =------------------------------------------------------------------------------------------
    def _on_pod(self, change: Any) -> None:
        if change.type != "ADDED":
            return
        labels, uid = (
            change.entry.labels,
            next((each for each in change.entry.owners if each in self.desired_states), None),
        )
        if uid is None:
            return
        role, index = labels.get(constants.ROLE_LABEL, ""), labels.get(constants.INDEX_LABEL, "")
        late, job_name = self._late_creates[uid, role], f"{self.names[uid]}/{role}"
        most = max((desired.counts.get(role, 0) for desired in self._possibly_read(uid)), default=0)
        alive = len(self.pod_tracker.live_pods(uid, role))
        made = self.pod_tracker.created_by_owner[uid, role]
        if alive > most + late:
            self._add_count_violation(f"{alive} live pods of {job_name}, desired at most {most}")
        if made > (reasons := self._allowed_creates[uid, role] + self.pod_tracker.ended_by_owner[uid, role] + late):
            self._add_count_violation(f"{made} pods of {job_name} created for {reasons} that were missing")
        if len(self.pod_tracker.with_index(uid, role, index)) > 1:
            self._add_count_violation(f"two pods of {job_name} have the index {index}")

    def before_delete(self, namespace: str, plural: str, name: str, uid: str | None) -> None:
        """An operator requests the delete of the object with that uid."""
        if not uid:
            self.add_violation(f"delete without uid: {plural} {name}")
        entry = self.kube.store.find(JOBS if plural == self.plural else plural, namespace, name)
        if entry is None or entry.uid != uid or entry.is_terminating or plural != "pods":
            return
        uid = next((each for each in entry.owners if each in self.desired_states), None)
        if uid is None:
            self.add_violation(f"deletes a pod of another owner: {name}")
            return
        role = entry.labels.get(constants.ROLE_LABEL, "")
        alive = {pod.uid: pod for pod in self.pod_tracker.live_pods(uid, role)}
        possible_states, now_s = self._possibly_read(uid), self._now_s()
        is_ending = any(desired.is_ending for desired in possible_states) or self.is_finished(uid)
        if entry.uid not in alive or is_ending:
            return
        least = min(desired.counts.get(role, 0) for desired in possible_states)
        deleted_at = self._deleted[uid, role]
        deleted_at[entry.uid] = now_s
        gone = sum(each in alive and now_s - at_s <= DELETE_BURST_S for each, at_s in deleted_at.items())
        # Trainer 0 is the rendezvous: while it is replaced its index counts, and another trainer may be deleted instead.
        places = int(role == constants.TRAINER and all(pod.index != "0" for pod in alive.values()))
        is_seen = self.has_full_view and now_s - self.kube.pod_lost_at > DELETE_BURST_S
        if (
            is_seen
            and len(alive) + places - gone
            < least - permanently_failed(self._previous[uid]) - self._late_creates[uid, role]
        ):
            self._add_count_violation(f"{name} is deleted, although {least} {role}s of {self.names[uid]} are desired")
        if role == constants.TRAINER and alive[entry.uid].index == "0" and least > 0:
            self._add_count_violation(f"trainer 0 of {self.names[uid]} is deleted before others")

    def is_finished(self, uid: str) -> bool:
        """Whether this job has processed all of its data."""
        return uid in self.kube.finished_jobs

    # --- writes =---------------------------------------------------------------------------------------------
    def before_patch(self, path: str, body: dict[str, Any]) -> None:
        """Only the user writes the spec, except one field; each patch has a resourceVersion (RM:I7, I24)."""
        if f"/{self.plural}/" not in path:
            return
        if not (body.get("metadata") or {}).get("resourceVersion"):
            self.add_violation(f"a job is patched without a resourceVersion: {path}")
        if path.endswith("/status"):
            allowed = {"metadata": {"resourceVersion": ...}, "status": ...}
        else:
            annotations = {constants.SHARING_ANNOTATION: ...}
            allowed = {
                "metadata": {"resourceVersion": ..., "annotations": annotations},
                "spec": {"trainer": {"replicas": ...}},
            }
        if others := _unexpected_field(body, allowed):
            self.add_violation(f"the operator writes a field that it does not own: {path} {others}")

    def after_create(self, obj: dict[str, Any]) -> None:
        """An operator created a pod or a service (RM:I8)."""
        metadata = obj["metadata"]
        owner = next((ref for ref in metadata.get("ownerReferences") or [] if ref.get("controller")), None)
        job = (metadata.get("labels") or {}).get(constants.JOB_LABEL)
        if owner is None or job != owner["name"] or self.names.get(owner["uid"]) != f"{metadata['namespace']}/{job}":
            self.add_violation(f"created without the owner or label of a job: {metadata['name']}")

    def _check_resize(self, uid: str, before: Mapping[str, Any], obj: Mapping[str, Any]) -> None:
        """The sharing pass has written (I25: bounds, cooldowns, capacity)."""
        was, record, desired = record_of(before), record_of(obj), self.desired_states[uid][-1]
        old, new = was.get("resizes") or [], record.get("resizes") or []
        new_resizes = new[-1:] if new != old else []
        for resize in new_resizes:
            job_name, reason, after = self.names[uid], resize["reason"], resize["to"]
            is_growth, is_requested = after > resize["from"], reason == "Requested"
            if (is_growth or not is_requested) and not desired.low <= after <= desired.high:
                self.add_violation(f"{job_name} is given {after}, but has {desired.low}..{desired.high}")
            self._check_cooldown(uid, obj, resize)
            if is_growth and (is_requested or reason in GROWTH_REASONS):
                self._check_capacity(uid, obj, after)
            if reason not in START_REASONS:
                is_late = is_requested and not is_growth  # the cooldown starts at the edit, not at its record
                self._resized_at[uid] = (
                    self._size_edited_at.get(uid, self._now_s()) if is_late else self._decided_at(uid, resize)
                )

    def _decided_at(self, uid: str, resize: Mapping[str, Any]) -> float:
        """When the pass decided this, to the second: the cooldown starts then, not at the commit."""
        passed_s = (self.operator_now() - datetime.fromisoformat(resize["at"])).total_seconds()
        if not 0.0 <= passed_s <= MAX_WRITE_DELAY_S:
            self.add_violation(
                f"{self.names[uid]} is resized now, and its record is from {passed_s:.1f} s ago: {resize}"
            )
        return self._now_s() - max(0.0, passed_s - 1.0)

    def _check_cooldown(self, uid: str, obj: Mapping[str, Any], resize: Mapping[str, Any]) -> None:
        scaling = obj["spec"].get("scaling") or {}
        elapsed_s = self._now_s() - self._resized_at.get(uid, -1e9)
        is_growth = resize["to"] > resize["from"]
        if is_growth and resize["reason"] in GROWTH_REASONS:
            least_s = scaling.get("growCooldownSeconds", 30)
        elif not is_growth and resize["reason"] in SHRINK_REASONS:
            least_s = scaling.get("shrinkCooldownSeconds", 30)
        else:
            return
        if elapsed_s < least_s:
            self.add_violation(
                f"{self.names[uid]} is resized after {elapsed_s:.1f} s, its cooldown is {least_s} s: {resize}"
            )

    def _check_capacity(self, uid: str, obj: Mapping[str, Any], after: int) -> None:
        """Growth is decided when the capacity is free, not when a delete has been requested."""
        if not self.has_full_view or self._now_s() - self.kube.capacity_changed_at < CAPACITY_LAG_S:
            return
        free = self._free()
        placed = sum(self._is_placed(pod.name, obj) for pod in self.pod_tracker.live_pods(uid, constants.TRAINER))
        missing = max(0, after - permanently_failed(obj) - placed)
        for resource, amount in requests_of(obj["spec"]["trainer"]).items():
            if amount * missing > free[resource]:
                self.add_violation(
                    f"{self.names[uid]} grows to {after}, {missing} of them need {amount * missing} {resource}, "
                    f"but {free[resource]} is free"
                )

    def _is_placed(self, name: str, job: Mapping[str, Any]) -> bool:
        entry = self.kube.store.find("pods", job["metadata"]["namespace"], name)
        return entry is not None and bool(node_of(entry.shared()))

    def _free(self) -> Counter[str]:
        """Capacity of usable nodes without the requests of all their pods, terminating ones included."""
        free: Counter[str] = Counter()
        usable = set()
        for key, entry in self.kube.store.entries("nodes"):
            node = entry.shared()
            is_ready = any(each["status"] == "True" for each in node["status"]["conditions"] if each["type"] == "Ready")
            if is_ready and not (node.get("spec") or {}).get("unschedulable"):
                usable.add(key.name)
                for resource, text in node["status"]["allocatable"].items():
                    free[resource] += to_millis(text)
        for _, entry in self.kube.store.entries("pods"):
            pod = entry.shared()
            if node_of(pod) in usable and (pod.get("status") or {}).get("phase") not in ENDED:
                for container in pod["spec"]["containers"]:
                    free.subtract(requests_of(container))
        return free

    def _check_status(self, uid: str, before: Mapping[str, Any] | None, obj: Mapping[str, Any]) -> None:
        """A status was committed: its generation neither decreases nor is unread, and only failures are counted (RM:I9, I25)."""
        status, job_name = obj.get("status") or {}, self.names[uid]
        seen, seen_before = (each.get("observedGeneration", 0) for each in (status, (before or {}).get("status") or {}))
        if status and seen < seen_before:  # another writer may clear it
            self.add_violation(f"observedGeneration of {job_name} went from {seen_before} back to {seen}")
        if seen > self._generation_read[uid]:
            self.add_violation(f"observedGeneration of {job_name} is {seen}, which no operator has read")
        for role in constants.ROLES:
            failed = (status.get(role) or {}).get("failed", 0)
            if failed > (actual := self.kube.failed[uid, role]):
                self.add_violation(f"{failed} failed {role}s of {job_name} are counted, and {actual} failed")


def requests_of(container: Mapping[str, Any]) -> dict[str, int]:
    """The requests of a container or of a role of a job, in thousandths."""
    amounts = (container.get("resources") or {}).get("requests") or {}
    return {resource: to_millis(str(amount)) for resource, amount in amounts.items()}


def _unexpected_field(body: Mapping[str, Any], allowed: Mapping[str, Any], path: str = "") -> str:
    """The first field that is not in `allowed`; empty if there is none."""
    for key, value in body.items():
        if key not in allowed:
            return f"{path}.{key}={json.dumps(value)[:80]}"
        inner = allowed[key]
        if (
            isinstance(inner, Mapping)
            and isinstance(value, Mapping)
            and (found := _unexpected_field(value, inner, f"{path}.{key}"))
        ):
            return found
    return ""


def _size_of(obj: Mapping[str, Any]) -> object:
    return ((obj.get("spec") or {}).get("trainer") or {}).get("replicas")
