"""What must hold at every write of the operator?

A judge between each operator and the API. It remembers what was wanted at each moment and which wish an operator had
read, and counts pods in the store itself, not in anybody's cache. It raises nothing while a run lasts (the operator
would swallow it): it notes violations, and the run ends red. Rules RM:I1–I10, I13 and D15; what must hold at the
end of a run (I14–I16, I18, I19) is asked in stage.py.
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
"""So many violations make a run red enough: a product that runs wild would make it endless."""
MAX_WATCH_OUTAGE = timedelta(seconds=150)
"""So long a watch may be deaf, lagging or away, one after the other; by then an operator knows who owns what."""
MAX_CREATE_DELAY = timedelta(seconds=30)
"""So long after it was sent a create is carried out at the latest: its sender gives up after 10 s, `CommitLate` adds 20."""
MAX_WATCH_LAG = timedelta(seconds=15)
"""So late a watch may show what an operator judges a cluster by that it has read live: a lag, and a line that is held up."""


class InvariantChecks:
    """What was written, and what was wrong."""

    plural = ""
    """Of the custom resource that is judged."""

    def __init__(self, kube: SimulatedKube, *, holder: Callable[[], str | None] | None = None) -> None:
        self.kube = kube
        self.holder = holder
        self.violations: list[str] = []
        self.limit_reached = asyncio.Event()
        self.writes: list[str] = []
        self.has_stale_start = False
        """A new process was shown a past that nobody could tell from the present: counts of pods are not judged."""
        self.operator_now: Callable[[], datetime] = kube.now
        """Wall time of the machine on which the operator runs."""
        self.has_full_view = True
        """False where an operator is kept from seeing what there is, so that it may give room that is none any more."""

    def checked_transport(
        self, inner: Transport, identity: Callable[[], str] = lambda: "operator"
    ) -> "CheckedTransport":
        """Where one operator comes in, which may come back as somebody else."""
        return CheckedTransport(self, inner, identity)

    def check_lease(self, identity: str, method: str, path: str) -> None:
        """A write leaves an operator, or is carried out: it must hold the lease both times (RM:I10)."""
        if self.holder is not None and is_checked_write(method, path) and (holder := self.holder()) != identity:
            self.add_violation(f"{identity} writes, but {holder or 'nobody'} holds the lease: {method} {path}")

    def add_violation(self, text: str) -> None:
        """Something is wrong."""
        self.violations.append(f"{self.kube.now():%H:%M:%S.%f} {text}")
        if len(self.violations) >= MAX_VIOLATIONS:
            self.limit_reached.set()

    def _add_count_violation(self, text: str) -> None:
        if not self.has_stale_start:
            self.add_violation(text)

    # --- what whoever judges a kind makes of it ----------------------------------------------------------------------

    def record_read(self, identity: str, metadata: dict[str, Any]) -> None:
        """An operator has read an object of the kind, as it is or as it was."""

    def expect_late_create(self, body: bytes | None) -> None:
        """A create commits long after its sender gave up."""

    def record_kill(self) -> None:
        """An operator was killed."""

    def before_delete(self, namespace: str, plural: str, name: str, uid: str | None) -> None:
        """Somebody asks for the end of the object with that uid."""

    def before_patch(self, path: str, body: dict[str, Any]) -> None:
        """An operator asks for a change."""

    def after_create(self, obj: dict[str, Any]) -> None:
        """An operator made something."""


class RayClusterChecks(InvariantChecks):
    """What is wanted and what was done, for all operators together.

    - `door(transport, identity)` is what one operator gets instead of its transport.
    - `holder` answers whose lease it is at this instant; None: nobody holds one, or leases are not played.
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
        """Cluster uid -> who -> the generation that this operator read last."""
        self._state_read: dict[str, dict[str, int]] = defaultdict(dict)
        """Cluster uid -> who -> the number of the wish that this operator read last."""
        self._state_of_version: dict[tuple[str, str], int] = {}
        """(cluster uid, version) -> the number of the wish that stood in that version."""
        self._names: dict[str, str] = {}
        self._allowed_deletes: Counter[tuple[str, str]] = Counter()
        self._allowed_creates: Counter[tuple[str, str]] = Counter()
        self._late_creates: Counter[tuple[str, str]] = Counter()
        self._late_create_names: set[str] = set()
        self.created_after_kill: set[str] = set()
        """Names of pods that a killed operator may have asked for, and that were made after its end."""
        self._killed_at: datetime | None = None
        self._delete_requested: dict[str, str] = {}
        """Uids of the pods whose end an operator asked for -> the name; a request may be lost, or carried out much later."""
        self._deleted: Counter[tuple[str, str]] = Counter()
        self._ready: dict[str, deque[tuple[datetime, Counter[str]]]] = defaultdict(deque)
        """Cluster uid -> how many pods of each group were Ready of late, and from when on."""
        self._was_ready: dict[str, set[int]] = defaultdict(set)
        self._status: dict[str, tuple[int, str]] = {}
        self._ignores_status_writes = False
        self._moved_at: dict[str, datetime] = {}
        """Pod uid -> when others took it away from a RayCluster."""
        kube.store.subscribe(self._on_cluster, RAYCLUSTERS)
        kube.store.subscribe(self._on_pod, "pods")

    # --- what is wanted --------------------------------------------------------------------------------------------
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
        """How many more may be made now, and how many of those that are there may go without a name (RM:I4)."""
        was = {"headgroup": 1, **before.counts} if before else {"headgroup": 0}
        counts = {**desired.counts, "headgroup": 1}
        for group in {**was, **counts}:
            self._allowed_creates[uid, group] += max(0, counts.get(group, 0) - was.get(group, 0))
            if group not in desired.counts or (
                desired.may_choose_victims and (before is None or before.may_choose_victims)
            ):
                self._allowed_deletes[uid, group] += max(0, was.get(group, 0) - counts.get(group, 0))
            elif desired.may_choose_victims:  # autoscaling was switched off: whoever was spared until now may go
                self._allowed_deletes[uid, group] += max(0, len(self.pod_tracker.live_pods(uid, group)) - counts[group])

    def record_read(self, identity: str, metadata: dict[str, Any]) -> None:
        """An operator has read a RayCluster as it is, or as it was."""
        uid = metadata["uid"]
        self.read[uid][identity] = metadata["generation"]
        self._state_read[uid][identity] = self._state_of_version[uid, metadata["resourceVersion"]]

    def _on_pod(self, change: Any) -> None:
        if change.type == "MODIFIED" and set(change.previous.owners) - set(change.entry.owners):
            self._moved_at[change.entry.uid] = self.kube.now()
            self._delete_requested.pop(
                change.entry.uid, None
            )  # what arrives later was meant for the former owner's pod
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
                        self._add_count_violation(f"made while the cluster is suspended: {change.key.name}")
                    self._count(uid, change.entry.labels.get("ray.io/group", ""), change.key.name)

    def _record_readiness(self, uid: str) -> None:
        """Which wishes are fulfilled at this instant, or were by what a lagging watch still shows, head and workers Ready?"""
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
        """A create commits long after its sender gave up, and perhaps after its sender was killed.

        Then nobody can know of it: a successor may have made another pod in its stead, and has to end one of the two. So
        each such pod may be one too many and one more to delete, and it may come while others that are no longer wanted are
        still being deleted; nothing else is forgiven.
        """
        obj = msgspec.json.decode(body) if body else {}
        if obj.get("kind") == "Pod":
            owner, group = obj["metadata"]["ownerReferences"][0]["uid"], obj["metadata"]["labels"]["ray.io/group"]
            self._late_creates[owner, group] += 1
            self._late_create_names.add(obj["metadata"]["name"])
            if self._killed_at is not None and self.kube.now() - self._killed_at <= MAX_CREATE_DELAY:
                self.created_after_kill.add(obj["metadata"]["name"])

    def record_kill(self) -> None:
        """An operator was killed: of its creates that arrive later no successor can know."""
        self._killed_at = self.kube.now()

    # --- what is done ----------------------------------------------------------------------------------------------
    def before_patch(self, path: str, body: dict[str, Any]) -> None:
        """The spec is the user's and the autoscaler's (RM:I7)."""
        releases = not body.keys() - {"metadata"} and not body["metadata"].keys() - {
            "finalizers",
            "uid",
            "resourceVersion",
        }
        if "/rayclusters/" in path and not path.endswith("/status") and not releases:
            self.add_violation(f"the operator wrote a spec: PATCH {path}")

    def after_create(self, obj: dict[str, Any]) -> None:
        """An operator made a pod or service."""
        owner = next((ref for ref in obj["metadata"].get("ownerReferences") or [] if ref.get("controller")), None)
        labels, name = obj["metadata"].get("labels") or {}, obj["metadata"]["name"]
        label_owner = labels.get("ray.io/cluster") or labels.get("ray.io/headless-worker-svc")
        if owner is None or label_owner != owner["name"]:
            self.add_violation(f"created without owner or cluster label: {name}")
            return
        uid = owner["uid"]
        if self._names.get(uid) != owner["name"]:
            self.add_violation(f"{name} is owned by {owner['name']} {uid}, which never was")
        if obj["kind"] == "Service":
            services = {key.name for key in self.kube.store.dependents(uid) if key.resource == "services"}
            if len(services - {f"{owner['name']}-headless"}) > 1:
                self._add_count_violation(f"{len(services)} services of {owner['name']}: {sorted(services)}")

    def _count(self, uid: str, group: str, pod: str) -> None:
        """A pod has just been committed: was it one too many, or one for which there was no reason (RM:I1–I3)?"""
        late, name = self._late_creates[uid, group], f"{self._names[uid]}/{group}"
        read = min(self._state_read[uid].values(), default=0)
        counts = (desired.counts.get(group, 0) for desired in self.desired_states[uid][read:])
        most = 1 if group == "headgroup" else max(counts, default=0)
        alive, made = len(self.pod_tracker.live_pods(uid, group)), self.pod_tracker.created_by_owner[uid, group]
        if alive > most + late and pod not in self._late_create_names:
            self._add_count_violation(f"{alive} live pods of {name}, wanted at most {most}")
        reasons = self._allowed_creates[uid, group] + self.pod_tracker.ended_by_owner[uid, group] + late
        if made > reasons:
            self._add_count_violation(f"{made} pods of {name} for {reasons} that were missing")

    def before_delete(self, namespace: str, plural: str, name: str, uid: str | None) -> None:
        """Somebody asks for the end of the object with that uid."""
        if not uid:
            self.add_violation(f"delete without uid: {plural} {name}")
        entry = self.kube.store.find(plural, namespace, name)
        if entry is None or entry.uid != uid or entry.is_terminating or plural != "pods":
            return
        owner = next((uid for uid in entry.owners if uid in self.desired_states), None)
        if entry.uid in self._moved_at and self.kube.now() - self._moved_at[entry.uid] < MAX_WATCH_OUTAGE:
            return
        if owner is None:
            self.add_violation(f"deletes a pod of a stranger: {name}")
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
        """A pod has begun to end: if an operator asked for it, was it one too many (RM:I4)?

        Judged when it happens, for what a killed operator sent may never arrive.
        """
        cluster = self.kube.cluster_read_only(self._names[owner])
        if cluster is None or cluster["metadata"]["uid"] != owner or "deletionTimestamp" in cluster["metadata"]:
            return  # the garbage collector's doing
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
            self._add_count_violation(f"deleted more of {self._names[owner]}/{group} than anybody asked for: {name}")

    @contextmanager
    def ignoring_status_writes(self) -> Iterator[None]:
        """What is stored meanwhile is not the operator's word; what it says next is compared with nothing before."""
        self._ignores_status_writes = True
        try:
            yield
        finally:
            self._ignores_status_writes = False
            self.reset_statuses()

    def reset_statuses(self) -> None:
        """The store went back to an older snapshot: what was reported after it was never reported."""
        self._status.clear()

    def _check_status(self, obj: dict[str, Any]) -> None:
        """A status was committed, perhaps without its writer hearing of it (RM:I9)."""
        if self._ignores_status_writes:
            return
        uid, name, status = obj["metadata"]["uid"], obj["metadata"]["name"], obj.get("status") or {}
        seen, state = status.get("observedGeneration") or 0, status.get("state") or ""
        generation_before, state_before = self._status.get(uid, (0, ""))
        self._status[uid] = seen, state
        if seen < generation_before:
            self.add_violation(f"observedGeneration of {name} went from {generation_before} back to {seen}")
        if seen > max(self.read[uid].values(), default=0):
            self.add_violation(f"observedGeneration of {name} is {seen}, which nobody has read")
        if state == "ready" != state_before and seen not in self._was_ready[uid]:
            self.add_violation(f"{name} is called ready for generation {seen}, and never was")


def is_checked_write(method: str, path: str) -> bool:
    """Anything that changes the world but events, which nobody waits for, and the lease itself."""
    return method != "GET" and "/events" not in path and "/leases" not in path


SENDER: ContextVar[str] = ContextVar("SENDER")
"""Which operator sent the request that is carried out; the tasks that a fault starts for a request know it too."""


class CheckedTransport:
    """Carries one operator's requests on and looks at each: a Transport around a Transport."""

    def __init__(self, checks: InvariantChecks, inner: Transport, identity: Callable[[], str]) -> None:
        self._checks = checks
        self._inner = inner
        self._identity = identity
        self._write_times: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WRITES_PER_SECOND + 1))

    def stream(self, path: str, **rest: Any) -> AsyncIterator[bytes]:
        """A watch; nothing to judge."""
        return self._inner.stream(path, **rest)

    async def close(self) -> None:
        """Let go."""
        await self._inner.close()

    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        """One call, looked at before and after."""
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
        """At most ten writes a second to one object, whatever fails (RM:I13)."""
        name = msgspec.json.decode(body or b"{}").get("metadata", {}).get("name", "") if method == "POST" else ""
        write_times = self._write_times[f"{path}/{name}"]
        write_times.append(asyncio.get_running_loop().time())
        if len(write_times) > WRITES_PER_SECOND and write_times[-1] - write_times[0] < 1.0:
            self._checks.add_violation(f"more than {WRITES_PER_SECOND} writes within a second: {method} {path} {name}")

    def _after_write(self, method: str, path: str, response: Response) -> None:
        if method == "POST" and path.endswith(("/pods", "/services")) and response.status == 201:
            self._checks.after_create(msgspec.json.decode(response.body))
