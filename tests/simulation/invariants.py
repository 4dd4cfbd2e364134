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

from simulation.census import Census
from simulation.replica_judge import ReplicaJudge
from simulation.wishes import Wish, is_stored_as_suspended, is_suspended, wish_of
from simulation.world import RAYCLUSTERS, World

WRITES_PER_SECOND = 10
ENOUGH = 20
"""So many violations make a run red enough: a product that runs wild would make it endless."""
BLIND = timedelta(seconds=150)
"""So long a watch may be deaf, lagging or away, one after the other; by then an operator knows who owns what."""
LATEST = timedelta(seconds=30)
"""So long after it was sent a create is carried out at the latest: its sender gives up after 10 s, `CommitLate` adds 20."""
LAGGING = timedelta(seconds=15)
"""So late a watch may show what an operator judges a cluster by that it has read live: a lag, and a line that is held up."""


class Notes:
    """What was written, and what was wrong."""

    plural = ""
    """Of the custom resource that is judged."""

    def __init__(self, world: World, *, holder: Callable[[], str | None] | None = None) -> None:
        self.world = world
        self.holder = holder
        self.violations: list[str] = []
        self.has_enough = asyncio.Event()
        self.writes: list[str] = []
        self.is_past_believed = False
        """A new process was shown a past that nobody could tell from the present: counts of pods are not judged."""
        self.writer_now: Callable[[], datetime] = world.now
        """Wall time of the machine on which the operator runs."""
        self.is_view_trusted = True
        """False where an operator is kept from seeing what there is, so that it may give room that is none any more."""

    def door(self, inner: Transport, identity: Callable[[], str] = lambda: "operator") -> "Door":
        """Where one operator comes in, which may come back as somebody else."""
        return Door(self, inner, identity)

    def witness(self, identity: str, method: str, path: str) -> None:
        """A write leaves an operator, or is carried out: it must hold the lease both times (RM:I10)."""
        if self.holder is not None and is_judged(method, path) and (holder := self.holder()) != identity:
            self.note(f"{identity} writes, but {holder or 'nobody'} holds the lease: {method} {path}")

    def note(self, text: str) -> None:
        """Something is wrong."""
        self.violations.append(f"{self.world.now():%H:%M:%S.%f} {text}")
        if len(self.violations) >= ENOUGH:
            self.has_enough.set()

    def _note_count(self, text: str) -> None:
        if not self.is_past_believed:
            self.note(text)

    # --- what whoever judges a kind makes of it ----------------------------------------------------------------------

    def note_read(self, identity: str, metadata: dict[str, Any]) -> None:
        """An operator has read an object of the kind, as it is or as it was."""

    def expect_late(self, body: bytes | None) -> None:
        """A create commits long after its sender gave up."""

    def note_killed(self) -> None:
        """An operator was killed."""

    def before_delete(self, namespace: str, plural: str, name: str, asked: str | None) -> None:
        """Somebody asks for the end of the object with that uid."""

    def before_patch(self, path: str, body: dict[str, Any]) -> None:
        """An operator asks for a change."""

    def after_create(self, obj: dict[str, Any]) -> None:
        """An operator made something."""


class Judge(Notes):
    """What is wanted and what was done, for all operators together.

    - `door(transport, identity)` is what one operator gets instead of its transport.
    - `holder` answers whose lease it is at this instant; None: nobody holds one, or leases are not played.
    """

    plural = "rayclusters"

    def __init__(self, world: World, census: Census, *, holder: Callable[[], str | None] | None = None) -> None:
        super().__init__(world, holder=holder)
        self.census = census
        self.replicas = ReplicaJudge(census)
        self.wishes: dict[str, list[Wish]] = defaultdict(list)
        self.read: dict[str, dict[str, int]] = defaultdict(dict)
        """Cluster uid -> who -> the generation that this operator read last."""
        self._read_wish: dict[str, dict[str, int]] = defaultdict(dict)
        """Cluster uid -> who -> the number of the wish that this operator read last."""
        self._wish_at: dict[tuple[str, str], int] = {}
        """(cluster uid, version) -> the number of the wish that stood in that version."""
        self._names: dict[str, str] = {}
        self._shrunk: Counter[tuple[str, str]] = Counter()
        self._grown: Counter[tuple[str, str]] = Counter()
        self._late: Counter[tuple[str, str]] = Counter()
        self._late_names: set[str] = set()
        self.unknown_names: set[str] = set()
        """Names of pods that a killed operator may have asked for, and that were made after its end."""
        self._killed_at: datetime | None = None
        self._asked: dict[str, str] = {}
        """Uids of the pods whose end an operator asked for -> the name; a request may be lost, or carried out much later."""
        self._taken: Counter[tuple[str, str]] = Counter()
        self._ready: dict[str, deque[tuple[datetime, Counter[str]]]] = defaultdict(deque)
        """Cluster uid -> how many pods of each group were Ready of late, and from when on."""
        self._was_well: dict[str, set[int]] = defaultdict(set)
        self._status: dict[str, tuple[int, str]] = {}
        self._is_overlooking = False
        self._given_away: dict[str, datetime] = {}
        """Pod uid -> when others took it away from a RayCluster."""
        world.store.subscribe(self._on_cluster, RAYCLUSTERS)
        world.store.subscribe(self._on_pod, "pods")

    # --- what is wanted --------------------------------------------------------------------------------------------
    def _on_cluster(self, change: Any) -> None:
        obj = change.entry.shared()
        metadata = obj["metadata"]
        uid, wishes = metadata["uid"], self.wishes[metadata["uid"]]
        self._names[uid] = metadata["name"]
        wish = wish_of(obj)
        if not wishes or wishes[-1] != wish:
            self._note_change(uid, wishes[-1] if wishes else None, wish)
            wishes.append(wish)
        self._wish_at[uid, metadata["resourceVersion"]] = len(wishes) - 1
        self._note_wellness(uid)
        self._judge_status(obj)

    def _note_change(self, uid: str, before: Wish | None, wish: Wish) -> None:
        """How many more may be made now, and how many of those that are there may go without a name (RM:I4)."""
        was = {"headgroup": 1, **before.counts} if before else {"headgroup": 0}
        counts = {**wish.counts, "headgroup": 1}
        for group in {**was, **counts}:
            self._grown[uid, group] += max(0, counts.get(group, 0) - was.get(group, 0))
            if group not in wish.counts or (wish.may_choose and (before is None or before.may_choose)):
                self._shrunk[uid, group] += max(0, was.get(group, 0) - counts.get(group, 0))
            elif wish.may_choose:  # autoscaling was switched off: whoever was spared until now may go
                self._shrunk[uid, group] += max(0, len(self.census.live_in(uid, group)) - counts[group])

    def note_read(self, identity: str, metadata: dict[str, Any]) -> None:
        """An operator has read a RayCluster as it is, or as it was."""
        uid = metadata["uid"]
        self.read[uid][identity] = metadata["generation"]
        self._read_wish[uid][identity] = self._wish_at[uid, metadata["resourceVersion"]]

    def _on_pod(self, change: Any) -> None:
        if change.type == "MODIFIED" and set(change.previous.owners) - set(change.entry.owners):
            self._given_away[change.entry.uid] = self.world.now()
            self._asked.pop(change.entry.uid, None)  # what arrives later was meant for the former owner's pod
        for uid in change.entry.owners:
            if uid in self.wishes:
                self._note_wellness(uid)
                self.replicas.note_pod(uid, change)
                self._note_taken(uid, change)
                if change.type == "ADDED":
                    cluster = self.world.cluster_as_stored(self._names[uid])
                    is_late = change.key.name in self._late_names
                    if (
                        cluster
                        and cluster["metadata"]["uid"] == uid
                        and is_stored_as_suspended(cluster)
                        and not is_late
                    ):
                        self._note_count(f"made while the cluster is suspended: {change.key.name}")
                    self._count(uid, change.entry.labels.get("ray.io/group", ""), change.key.name)

    def _note_wellness(self, uid: str) -> None:
        """Which wishes are fulfilled at this instant, or were by what a lagging watch still shows, head and workers Ready?"""
        seen, now = self._ready[uid], self.world.now()
        ready = self.census.ready(uid)
        if not seen or seen[-1][1] != ready:
            seen.append((now, ready))
        while seen[0][0] < now - LAGGING and len(seen) > 1 and seen[1][0] < now - LAGGING:
            seen.popleft()
        for wish in self.wishes[uid][-3:]:
            if wish.generation not in self._was_well[uid] and any(
                r["headgroup"] and all(r[g] >= count for g, count in wish.counts.items()) for _, r in seen
            ):
                self._was_well[uid].add(wish.generation)

    def expect_late(self, body: bytes | None) -> None:
        """A create commits long after its sender gave up, and perhaps after its sender was killed.

        Then nobody can know of it: a successor may have made another pod in its stead, and has to end one of the two. So
        each such pod may be one too many and one more to delete, and it may come while others that are no longer wanted are
        still being deleted; nothing else is forgiven.
        """
        obj = msgspec.json.decode(body) if body else {}
        if obj.get("kind") == "Pod":
            owner, group = obj["metadata"]["ownerReferences"][0]["uid"], obj["metadata"]["labels"]["ray.io/group"]
            self._late[owner, group] += 1
            self._late_names.add(obj["metadata"]["name"])
            if self._killed_at is not None and self.world.now() - self._killed_at <= LATEST:
                self.unknown_names.add(obj["metadata"]["name"])

    def note_killed(self) -> None:
        """An operator was killed: of its creates that arrive later no successor can know."""
        self._killed_at = self.world.now()

    # --- what is done ----------------------------------------------------------------------------------------------
    def before_patch(self, path: str, body: dict[str, Any]) -> None:
        """The spec is the user's and the autoscaler's (RM:I7)."""
        releases = not body.keys() - {"metadata"} and not body["metadata"].keys() - {
            "finalizers",
            "uid",
            "resourceVersion",
        }
        if "/rayclusters/" in path and not path.endswith("/status") and not releases:
            self.note(f"the operator wrote a spec: PATCH {path}")

    def after_create(self, obj: dict[str, Any]) -> None:
        """An operator made a pod or service."""
        owner = next((ref for ref in obj["metadata"].get("ownerReferences") or [] if ref.get("controller")), None)
        labels, name = obj["metadata"].get("labels") or {}, obj["metadata"]["name"]
        whose = labels.get("ray.io/cluster") or labels.get("ray.io/headless-worker-svc")
        if owner is None or whose != owner["name"]:
            self.note(f"created without owner or cluster label: {name}")
            return
        uid = owner["uid"]
        if self._names.get(uid) != owner["name"]:
            self.note(f"{name} is owned by {owner['name']} {uid}, which never was")
        if obj["kind"] == "Service":
            services = {key.name for key in self.world.store.dependents(uid) if key.resource == "services"}
            if len(services - {f"{owner['name']}-headless"}) > 1:
                self._note_count(f"{len(services)} services of {owner['name']}: {sorted(services)}")

    def _count(self, uid: str, group: str, pod: str) -> None:
        """A pod has just been committed: was it one too many, or one for which there was no reason (RM:I1–I3)?"""
        late, name = self._late[uid, group], f"{self._names[uid]}/{group}"
        read = min(self._read_wish[uid].values(), default=0)
        counts = (wish.counts.get(group, 0) for wish in self.wishes[uid][read:])
        most = 1 if group == "headgroup" else max(counts, default=0)
        alive, made = len(self.census.live_in(uid, group)), self.census.made[uid, group]
        if alive > most + late and pod not in self._late_names:
            self._note_count(f"{alive} live pods of {name}, wanted at most {most}")
        reasons = self._grown[uid, group] + self.census.ended[uid, group] + late
        if made > reasons:
            self._note_count(f"{made} pods of {name} for {reasons} that were missing")

    def before_delete(self, namespace: str, plural: str, name: str, asked: str | None) -> None:
        """Somebody asks for the end of the object with that uid."""
        if not asked:
            self.note(f"delete without uid: {plural} {name}")
        entry = self.world.store.find(plural, namespace, name)
        if entry is None or entry.uid != asked or entry.is_terminating or plural != "pods":
            return
        owner = next((uid for uid in entry.owners if uid in self.wishes), None)
        if entry.uid in self._given_away and self.world.now() - self._given_away[entry.uid] < BLIND:
            return
        if owner is None:
            self.note(f"deletes a pod of a stranger: {name}")
            return
        cluster = self.world.cluster_as_stored(self._names[owner])
        if cluster and is_suspended(cluster) and not is_stored_as_suspended(cluster):
            self.note(f"deleted before the suspension was stored: {name}")
        group = entry.labels.get("ray.io/group", "")
        pod = next((pod for pod in self.census.live_in(owner, group) if pod.uid == entry.uid), None)
        is_named = any(name in wish.named for wish in self.wishes[owner])
        goes_with_replica = pod is not None and self.replicas.may_end(owner, pod, self.wishes[owner])
        if is_named or pod is None or goes_with_replica or group == "headgroup":
            return
        self._asked[entry.uid] = name

    def _note_taken(self, owner: str, change: Any) -> None:
        """A pod has begun to end: if an operator asked for it, was it one too many (RM:I4)?

        Judged when it happens, for what a killed operator sent may never arrive.
        """
        cluster = self.world.cluster_as_stored(self._names[owner])
        if cluster is None or cluster["metadata"]["uid"] != owner or "deletionTimestamp" in cluster["metadata"]:
            return  # the garbage collector's doing
        name = self._asked.pop(change.entry.uid, "") if change.type == "DELETED" or change.entry.is_terminating else ""
        if not name:
            return
        group = change.entry.labels.get("ray.io/group", "")
        self._taken[owner, group] += 1
        most = self._shrunk[owner, group] + self._late[owner, group] + self.census.brought[owner, group]
        if self._taken[owner, group] > most:
            self._note_count(f"deleted more of {self._names[owner]}/{group} than anybody asked for: {name}")

    @contextmanager
    def overlooking_statuses(self) -> Iterator[None]:
        """What is stored meanwhile is not the operator's word; what it says next is compared with nothing before."""
        self._is_overlooking = True
        try:
            yield
        finally:
            self._is_overlooking = False
            self.forget_statuses()

    def forget_statuses(self) -> None:
        """The store went back to an older snapshot: what was reported after it was never reported."""
        self._status.clear()

    def _judge_status(self, obj: dict[str, Any]) -> None:
        """A status was committed, perhaps without its writer hearing of it (RM:I9)."""
        if self._is_overlooking:
            return
        uid, name, told = obj["metadata"]["uid"], obj["metadata"]["name"], obj.get("status") or {}
        seen, state = told.get("observedGeneration") or 0, told.get("state") or ""
        seen_before, state_before = self._status.get(uid, (0, ""))
        self._status[uid] = seen, state
        if seen < seen_before:
            self.note(f"observedGeneration of {name} went from {seen_before} back to {seen}")
        if seen > max(self.read[uid].values(), default=0):
            self.note(f"observedGeneration of {name} is {seen}, which nobody has read")
        if state == "ready" != state_before and seen not in self._was_well[uid]:
            self.note(f"{name} is called ready for generation {seen}, and never was")


def is_judged(method: str, path: str) -> bool:
    """Anything that changes the world but events, which nobody waits for, and the lease itself."""
    return method != "GET" and "/events" not in path and "/leases" not in path


SENDER: ContextVar[str] = ContextVar("SENDER")
"""Which operator sent the request that is carried out; the tasks that a fault starts for a request know it too."""


class Door:
    """Carries one operator's requests on and looks at each: a Transport around a Transport."""

    def __init__(self, judge: Notes, inner: Transport, identity: Callable[[], str]) -> None:
        self._judge = judge
        self._inner = inner
        self._identity = identity
        self._moments: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WRITES_PER_SECOND + 1))

    def stream(self, path: str, **rest: Any) -> AsyncIterator[bytes]:
        """A watch; nothing to judge."""
        return self._inner.stream(path, **rest)

    async def close(self) -> None:
        """Let go."""
        await self._inner.close()

    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        """One call, looked at before and after."""
        is_write = is_judged(method, path)
        SENDER.set(self._identity())
        if is_write:
            self._before_write(method, path, body)
        response = await self._inner.request(method, path, body=body, **rest)
        if method == "GET" and f"/{self._judge.plural}/" in path and response.status == 200:
            self._judge.note_read(self._identity(), msgspec.json.decode(response.body)["metadata"])
        elif is_write:
            self._judge.writes.append(f"{method} {path} -> {response.status}")
            self._after_write(method, path, response)
        return response

    def _before_write(self, method: str, path: str, body: bytes | None) -> None:
        self._note_pace(method, path, body)
        self._judge.witness(self._identity(), method, path)
        if method == "DELETE":
            *_, namespace, plural, name = path.split("/")
            options = msgspec.json.decode(body) if body else {}
            self._judge.before_delete(namespace, plural, name, (options.get("preconditions") or {}).get("uid"))
        elif method == "PATCH":
            self._judge.before_patch(path, msgspec.json.decode(body or b"{}"))

    def _note_pace(self, method: str, path: str, body: bytes | None) -> None:
        """At most ten writes a second to one object, whatever fails (RM:I13)."""
        name = msgspec.json.decode(body or b"{}").get("metadata", {}).get("name", "") if method == "POST" else ""
        moments = self._moments[f"{path}/{name}"]
        moments.append(asyncio.get_running_loop().time())
        if len(moments) > WRITES_PER_SECOND and moments[-1] - moments[0] < 1.0:
            self._judge.note(f"more than {WRITES_PER_SECOND} writes within a second: {method} {path} {name}")

    def _after_write(self, method: str, path: str, response: Response) -> None:
        if method == "POST" and path.endswith(("/pods", "/services")) and response.status == 201:
            self._judge.after_create(msgspec.json.decode(response.body))
