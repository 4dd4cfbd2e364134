"""Invariants that are checked at every write of the operator.

A checked transport between each operator and the API records the desired state at each moment, and which of them an operator
has read; pods are counted in the store. A violation is recorded, not raised, because the operator would catch the exception;
the run fails at its end. Rules RM:I1–I10, I13 and D15; what must hold at the end of a run (I14–I16, I18, I19) is in
environment.py.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

import msgspec

from raytide.kube.transport import Response, Transport

from simulation.desired_state import DesiredState, desired_state, is_stored_as_suspended, is_suspended
from simulation.pod_tracker import PodTracker
from simulation.replica_checks import ReplicaChecks
from simulation.simulated_kube import RAYCLUSTERS, SimulatedKube

WRITES_PER_SECOND = 10
MAX_VIOLATIONS = 20
"""Number of violations after which a run ends: a defective operator could make it endless."""
MAX_WATCH_OUTAGE = timedelta(seconds=150)
"""Longest time for which a watch can be silent, lagging or closed in turn; afterwards an operator has seen the owners of all pods."""
MAX_CREATE_DELAY = timedelta(seconds=30)
"""Longest time from sending a create to its commit: the sender gives up after 10 s, and `CommitLate` adds 20 s."""
MAX_WATCH_LAG = timedelta(seconds=15)
"""Longest delay of a watch event that an operator uses together with a live read: a lag and a stalled event."""


class InvariantChecks:
    """Recorded writes and violations; the base of the checks of one kind."""

    plural = ""
    """The plural of the custom resource that is checked."""

    def __init__(self, kube: SimulatedKube, *, holder: Callable[[], str | None] | None = None) -> None:
        self.kube = kube
        self.holder = holder
        self.violations: list[str] = []
        self.limit_reached = asyncio.Event()
        self.writes: list[str] = []
        self.has_stale_start = False
        """A new process read old lists that it cannot distinguish from the current state: pod counts are not checked."""
        self.operator_now: Callable[[], datetime] = kube.now
        """Wall time of the node on which the operator runs."""
        self.has_full_view = True
        """False while a fault hides objects from the operator, so that it may assign capacity that is no longer free."""

    def checked_transport(
        self, inner: Transport, identity: Callable[[], str] = lambda: "operator"
    ) -> "CheckedTransport":
        """The transport of one operator, whose identity may change."""
        return CheckedTransport(self, inner, identity)

    def check_lease(self, identity: str, method: str, path: str) -> None:
        """A write is sent or carried out: its operator must hold the lease both times (RM:I10)."""
        if self.holder is not None and is_checked_write(method, path) and (holder := self.holder()) != identity:
            self.add_violation(f"{identity} writes, but the lease holder is {holder or 'unknown'}: {method} {path}")

    def add_violation(self, text: str) -> None:
        """Record a violation."""
        self.violations.append(f"{self.kube.now():%H:%M:%S.%f} {text}")
        if len(self.violations) >= MAX_VIOLATIONS:
            self.limit_reached.set()

    def _add_count_violation(self, text: str) -> None:
        if not self.has_stale_start:
            self.add_violation(text)

    # --- overridden per kind =----------------------------------------------------------------------

    def record_read(self, identity: str, metadata: dict[str, Any]) -> None:
        """An operator has read an object of the kind, in its current or an older version."""

    def expect_late_create(self, body: bytes | None) -> None:
        """A create is committed long after its sender gave up."""

    def record_kill(self) -> None:
        """An operator was killed."""

    def before_delete(self, namespace: str, plural: str, name: str, uid: str | None) -> None:
        """An operator requests the delete of the object with that uid."""

    def before_patch(self, path: str, body: dict[str, Any]) -> None:
        """An operator sends a patch."""

    def after_create(self, obj: dict[str, Any]) -> None:
        """An operator created an object."""


class RayClusterChecks(InvariantChecks):
    """Desired states and writes of RayClusters, for all operators together.

    - `door(transport, identity)` wraps the transport of one operator.
    - `holder` returns the lease holder now; None: there is none, or leases are not simulated.
    """

    plural = "rayclusters"

    def __init__(
        self, kube: SimulatedKube, pod_tracker: PodTracker, *, holder: Callable[[], str | None] | None = None
    ) -> None:
        super().__init__(kube, holder=holder)
        self.pod_tracker = pod_tracker
        self.replica_checks = ReplicaChecks(pod_tracker)
        self.desired_states: dict[str, list[DesiredState]] = defaultdict(list)
        self.read: dict[str, dict[str, int]] = defaultdict(dict)
        """Cluster uid -> operator -> the generation that it read last."""
        self._state_read: dict[str, dict[str, int]] = defaultdict(dict)
        """Cluster uid -> operator -> the index of the desired state that it read last."""
        self._state_of_version: dict[tuple[str, str], int] = {}
        """(cluster uid, resourceVersion) -> the index of the desired state in that version."""
        self._names: dict[str, str] = {}
        self._allowed_deletes: Counter[tuple[str, str]] = Counter()
        self._allowed_creates: Counter[tuple[str, str]] = Counter()
        self._late_creates: Counter[tuple[str, str]] = Counter()
        self._late_create_names: set[str] = set()
        self.created_after_kill: set[str] = set()
        """Names of pods that a killed operator may have requested, and that were created after it was killed."""
        self._killed_at: datetime | None = None
        self._delete_requested: dict[str, str] = {}
        """Uids of the pods whose delete an operator requested -> the name; a request can be lost or be carried out much later."""
        self._deleted: Counter[tuple[str, str]] = Counter()
        self._ready: dict[str, deque[tuple[datetime, Counter[str]]]] = defaultdict(deque)
        """Cluster uid -> recent numbers of Ready pods of each group, and since when."""
        self._was_ready: dict[str, set[int]] = defaultdict(set)
        self._status: dict[str, tuple[int, str]] = {}
        self._ignores_status_writes = False
        self._moved_at: dict[str, datetime] = {}
        """Pod uid -> when another writer removed its RayCluster as owner."""
        kube.store.subscribe(self._on_cluster, RAYCLUSTERS)
        kube.store.subscribe(self._on_pod, "pods")

    # --- desired state =--------------------------------------------------------------------------------------------
    def _on_cluster(self, change: Any) -> None:
        obj = change.entry.shared()
        metadata = obj["metadata"]
        uid, desired_states = metadata["uid"], self.desired_states[metadata["uid"]]
        self._names[uid] = metadata["name"]
        desired = desired_state(obj)
        if not desired_states or desired_states[-1] != desired:
            self._record_change(uid, desired_states[-1] if desired_states else None, desired)
            desired_states.append(desired)
        self._state_of_version[uid, metadata["resourceVersion"]] = len(desired_states) - 1
        self._record_readiness(uid)
        self._check_status(obj)

    def _record_change(self, uid: str, before: DesiredState | None, desired: DesiredState) -> None:
        """How many more pods may be created, and how many existing ones may be deleted without being named (RM:I4)."""
        was = {"headgroup": 1, **before.counts} if before else {"headgroup": 0}
        counts = {**desired.counts, "headgroup": 1}
        for group in {**was, **counts}:
            self._allowed_creates[uid, group] += max(0, counts.get(group, 0) - was.get(group, 0))
            if group not in desired.counts or (
                desired.may_choose_victims and (before is None or before.may_choose_victims)
            ):
                self._allowed_deletes[uid, group] += max(0, was.get(group, 0) - counts.get(group, 0))
            elif desired.may_choose_victims:  # autoscaling was switched off: all surplus workers may be deleted
                self._allowed_deletes[uid, group] += max(0, len(self.pod_tracker.live_pods(uid, group)) - counts[group])

    def record_read(self, identity: str, metadata: dict[str, Any]) -> None:
        """An operator has read a RayCluster, in its current or an older version."""
        uid = metadata["uid"]
        self.read[uid][identity] = metadata["generation"]
        self._state_read[uid][identity] = self._state_of_version[uid, metadata["resourceVersion"]]

    def _on_pod(self, change: Any) -> None:
        if change.type == "MODIFIED" and set(change.previous.owners) - set(change.entry.owners):
            self._moved_at[change.entry.uid] = self.kube.now()
            self._delete_requested.pop(
                change.entry.uid, None
            )  # a later delete was sent for the pod of the former owner
        for uid in change.entry.owners:
            if uid in self.desired_states:
                self._record_readiness(uid)
                self.replica_checks.record_pod(uid, change)
                self._check_delete(uid, change)
                if change.type == "ADDED":
                    cluster = self.kube.cluster_read_only(self._names[uid])
                    is_late = change.key.name in self._late_create_names
                    if (
                        cluster
                        and cluster["metadata"]["uid"] == uid
                        and is_stored_as_suspended(cluster)
                        and not is_late
                    ):
                        self._add_count_violation(f"created while the cluster is suspended: {change.key.name}")
                    self._count(uid, change.entry.labels.get("ray.io/group", ""), change.key.name)

    def _record_readiness(self, uid: str) -> None:
        """Record the desired states that are fulfilled now, or were by what a lagging watch still shows: head and workers Ready."""
        seen, now = self._ready[uid], self.kube.now()
        ready = self.pod_tracker.ready_counts(uid)
        if not seen or seen[-1][1] != ready:
            seen.append((now, ready))
        while seen[0][0] < now - MAX_WATCH_LAG and len(seen) > 1 and seen[1][0] < now - MAX_WATCH_LAG:
            seen.popleft()
        for desired in self.desired_states[uid][-3:]:
            if desired.generation not in self._was_ready[uid] and any(
                r["headgroup"] and all(r[g] >= count for g, count in desired.counts.items()) for _, r in seen
            ):
                self._was_ready[uid].add(desired.generation)

    def expect_late_create(self, body: bytes | None) -> None:
        """A create is committed long after its sender gave up, and perhaps after its sender was killed.

        The next operator process does not know of it: it may have created another pod instead and has to delete one of the
        two. So each such pod may be one surplus pod and one more to delete, and it may be created while surplus pods are still
        being deleted. No other exception is made.
        """
        obj = msgspec.json.decode(body) if body else {}
        if obj.get("kind") == "Pod":
            owner, group = obj["metadata"]["ownerReferences"][0]["uid"], obj["metadata"]["labels"]["ray.io/group"]
            self._late_creates[owner, group] += 1
            self._late_create_names.add(obj["metadata"]["name"])
            if self._killed_at is not None and self.kube.now() - self._killed_at <= MAX_CREATE_DELAY:
                self.created_after_kill.add(obj["metadata"]["name"])

    def record_kill(self) -> None:
        """An operator was killed: its successor does not know of creates that are committed later."""
        self._killed_at = self.kube.now()

    # --- writes =----------------------------------------------------------------------------------------------
    def before_patch(self, path: str, body: dict[str, Any]) -> None:
        """Only the user and the autoscaler write the spec (RM:I7)."""
        releases = not body.keys() - {"metadata"} and not body["metadata"].keys() - {
            "finalizers",
            "uid",
            "resourceVersion",
        }
        if "/rayclusters/" in path and not path.endswith("/status") and not releases:
            self.add_violation(f"the operator wrote a spec: PATCH {path}")

    def after_create(self, obj: dict[str, Any]) -> None:
        """An operator created a pod or a service."""
        owner = next((ref for ref in obj["metadata"].get("ownerReferences") or [] if ref.get("controller")), None)
        labels, name = obj["metadata"].get("labels") or {}, obj["metadata"]["name"]
        label_owner = labels.get("ray.io/cluster") or labels.get("ray.io/headless-worker-svc")
        if owner is None or label_owner != owner["name"]:
            self.add_violation(f"created without owner or cluster label: {name}")
            return
        uid = owner["uid"]
        if self._names.get(uid) != owner["name"]:
            self.add_violation(f"{name} is owned by {owner['name']} {uid}, which never existed")
        if obj["kind"] == "Service":
            services = {key.name for key in self.kube.store.dependents(uid) if key.resource == "services"}
            if len(services - {f"{owner['name']}-headless"}) > 1:
                self._add_count_violation(f"{len(services)} services of {owner['name']}: {sorted(services)}")

    def _count(self, uid: str, group: str, pod: str) -> None:
        """A pod was committed: check for surplus pods and for creates without a reason (RM:I1–I3)."""
        late, name = self._late_creates[uid, group], f"{self._names[uid]}/{group}"
        read = min(self._state_read[uid].values(), default=0)
        counts = (desired.counts.get(group, 0) for desired in self.desired_states[uid][read:])
        most = 1 if group == "headgroup" else max(counts, default=0)
        alive, made = len(self.pod_tracker.live_pods(uid, group)), self.pod_tracker.created_by_owner[uid, group]
        if alive > most + late and pod not in self._late_create_names:
            self._add_count_violation(f"{alive} live pods of {name}, desired at most {most}")
        reasons = self._allowed_creates[uid, group] + self.pod_tracker.ended_by_owner[uid, group] + late
        if made > reasons:
            self._add_count_violation(f"{made} pods of {name} created for {reasons} that were missing")

    def before_delete(self, namespace: str, plural: str, name: str, uid: str | None) -> None:
        """An operator requests the delete of the object with that uid."""
        if not uid:
            self.add_violation(f"delete without uid: {plural} {name}")
        entry = self.kube.store.find(plural, namespace, name)
        if entry is None or entry.uid != uid or entry.is_terminating or plural != "pods":
            return
        owner = next((uid for uid in entry.owners if uid in self.desired_states), None)
        if entry.uid in self._moved_at and self.kube.now() - self._moved_at[entry.uid] < MAX_WATCH_OUTAGE:
            return
        if owner is None:
            self.add_violation(f"deletes a pod of another owner: {name}")
            return
        cluster = self.kube.cluster_read_only(self._names[owner])
        if cluster and is_suspended(cluster) and not is_stored_as_suspended(cluster):
            self.add_violation(f"deleted before the suspension was stored: {name}")
        group = entry.labels.get("ray.io/group", "")
        pod = next((pod for pod in self.pod_tracker.live_pods(owner, group) if pod.uid == entry.uid), None)
        is_named = any(name in desired.to_delete for desired in self.desired_states[owner])
        goes_with_replica = pod is not None and self.replica_checks.may_delete_host(
            owner, pod, self.desired_states[owner]
        )
        if is_named or pod is None or goes_with_replica or group == "headgroup":
            return
        self._delete_requested[entry.uid] = name

    def _check_delete(self, owner: str, change: Any) -> None:
        """A pod has begun to terminate: if an operator requested it, was it a surplus pod (RM:I4)?

        Checked when it happens, because a request of a killed operator may never arrive.
        """
        cluster = self.kube.cluster_read_only(self._names[owner])
        if cluster is None or cluster["metadata"]["uid"] != owner or "deletionTimestamp" in cluster["metadata"]:
            return  # deleted by the garbage collector
        name = (
            self._delete_requested.pop(change.entry.uid, "")
            if change.type == "DELETED" or change.entry.is_terminating
            else ""
        )
        if not name:
            return
        group = change.entry.labels.get("ray.io/group", "")
        self._deleted[owner, group] += 1
        most = (
            self._allowed_deletes[owner, group]
            + self._late_creates[owner, group]
            + self.pod_tracker.moved_in[owner, group]
        )
        if self._deleted[owner, group] > most:
            self._add_count_violation(f"deleted more of {self._names[owner]}/{group} than were surplus: {name}")

    @contextmanager
    def ignoring_status_writes(self) -> Iterator[None]:
        """Ignore the statuses written meanwhile by another writer; the next one of the operator is not compared with an earlier one."""
        self._ignores_status_writes = True
        try:
            yield
        finally:
            self._ignores_status_writes = False
            self.reset_statuses()

    def reset_statuses(self) -> None:
        """The store was restored from an older snapshot: forget the statuses that were reported after it."""
        self._status.clear()

    def _check_status(self, obj: dict[str, Any]) -> None:
        """A status was committed, perhaps without a response to its writer (RM:I9)."""
        if self._ignores_status_writes:
            return
        uid, name, status = obj["metadata"]["uid"], obj["metadata"]["name"], obj.get("status") or {}
        seen, state = status.get("observedGeneration") or 0, status.get("state") or ""
        generation_before, state_before = self._status.get(uid, (0, ""))
        self._status[uid] = seen, state
        if seen < generation_before:
            self.add_violation(f"observedGeneration of {name} went from {generation_before} back to {seen}")
        if seen > max(self.read[uid].values(), default=0):
            self.add_violation(f"observedGeneration of {name} is {seen}, which no operator has read")
        if state == "ready" != state_before and seen not in self._was_ready[uid]:
            self.add_violation(f"{name} is reported ready for generation {seen}, and was not")


def is_checked_write(method: str, path: str) -> bool:
    """Whether it is a write, except of events, for which no caller waits, and of the lease."""
    return method != "GET" and "/events" not in path and "/leases" not in path


SENDER: ContextVar[str] = ContextVar("SENDER")
"""The operator that sent the current request; inherited by the tasks that a fault starts for the request."""


class CheckedTransport:
    """Transport that checks each request of one operator and passes it to the inner transport."""

    def __init__(self, checks: InvariantChecks, inner: Transport, identity: Callable[[], str]) -> None:
        self._checks = checks
        self._inner = inner
        self._identity = identity
        self._write_times: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WRITES_PER_SECOND + 1))

    def stream(self, path: str, **rest: Any) -> AsyncIterator[bytes]:
        """A watch; nothing is checked."""
        return self._inner.stream(path, **rest)

    async def close(self) -> None:
        """Close the inner transport."""
        await self._inner.close()

    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        """One call, checked before and after."""
        is_write = is_checked_write(method, path)
        SENDER.set(self._identity())
        if is_write:
            self._before_write(method, path, body)
        response = await self._inner.request(method, path, body=body, **rest)
        if method == "GET" and f"/{self._checks.plural}/" in path and response.status == 200:
            self._checks.record_read(self._identity(), msgspec.json.decode(response.body)["metadata"])
        elif is_write:
            self._checks.writes.append(f"{method} {path} -> {response.status}")
            self._after_write(method, path, response)
        return response

    def _before_write(self, method: str, path: str, body: bytes | None) -> None:
        self._check_rate(method, path, body)
        self._checks.check_lease(self._identity(), method, path)
        if method == "DELETE":
            *_, namespace, plural, name = path.split("/")
            options = msgspec.json.decode(body) if body else {}
            self._checks.before_delete(namespace, plural, name, (options.get("preconditions") or {}).get("uid"))
        elif method == "PATCH":
            self._checks.before_patch(path, msgspec.json.decode(body or b"{}"))

    def _check_rate(self, method: str, path: str, body: bytes | None) -> None:
        """At most ten writes per second to one object, at any fault (RM:I13)."""
        name = msgspec.json.decode(body or b"{}").get("metadata", {}).get("name", "") if method == "POST" else ""
        write_times = self._write_times[f"{path}/{name}"]
        write_times.append(asyncio.get_running_loop().time())
        if len(write_times) > WRITES_PER_SECOND and write_times[-1] - write_times[0] < 1.0:
            self._checks.add_violation(f"more than {WRITES_PER_SECOND} writes within a second: {method} {path} {name}")

    def _after_write(self, method: str, path: str, response: Response) -> None:
        if method == "POST" and path.endswith(("/pods", "/services")) and response.status == 201:
            self._checks.after_create(msgspec.json.decode(response.body))
