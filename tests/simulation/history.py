"""What happens to a RayCluster in its life?

Draws one history from a seed: at least twenty events (edits by users and autoscalers, pods that die, nodes of no quota,
others that edit what is not theirs, watches that lag or break, an operator that is killed at a write or never hears its answer), told to a running stage one
by one. Afterwards the troubles end, the world is given time, and everything must be exactly as wanted. Same seed, same
history.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from raytide_sandbox.faults.script import Call, Rule
from raytide_sandbox.faults.types import (
    FORBIDDEN,
    UNAUTHORIZED,
    Answer,
    CallFault,
    CommitLate,
    Cut,
    Delay,
    Duplicate,
    Error,
    Garbage,
    HalfLine,
    Hang,
    Kill,
    LoseAnswer,
    LoseRequest,
    RefuseConnection,
    Reset,
    Stall,
    WatchFault,
)

from simulation import foreign_hands
from simulation.manifests import NAME, NEIGHBOUR, find, group, new_cluster, stranger
from simulation.stage import Replica, Stage, heard_by
from simulation.wishes import wanted
from simulation.world import NAMESPACE, RAYCLUSTERS

EVENTS = 20
REPLICATED = 4
"""Every fourth life is led by two replicas with a lease."""
SETTLE_S = 240.0
FAULTS: tuple[CallFault, ...] = (
    Kill(),
    Kill(is_after=True),
    LoseRequest(),
    LoseAnswer(),
    Reset(),
    Answer(409),
    Answer(422),
    Answer(429, retry_after_s=1),
    Answer(500),
    Answer(503),
    Answer(504),
)
SPOILS: tuple[WatchFault, ...] = (
    Error(410),
    Error(500),
    Garbage(),
    Garbage(b"}{"),
    HalfLine(),
    HalfLine(is_cut=True),
    Duplicate(),
    Stall(5.0),
    Cut(),
    Hang(),
)
"""What may happen to a watch line. None is lost for good: an API server never does that to a watch it keeps open."""


def is_write(call: Call) -> bool:
    """Anything but events, which nobody waits for, and the lease."""
    return call.is_write and call.plural not in ("events", "leases")


def is_of_lease(call: Call) -> bool:
    """Whether it is about who leads."""
    return call.plural == "leases"


@dataclass
class History:
    """One told history; `violations` says what went wrong, `told` what happened before."""

    seed: int
    told: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    last_writes: list[str] = field(default_factory=list)

    def report(self) -> str:
        """For the person who has to find out why."""
        lines = [f"seed {self.seed}", *self.told[-60:], "--- violations", *self.violations[:20]]
        return "\n".join([*lines, "--- last writes", *self.last_writes[-20:]])


class Life:
    """Tells one history."""

    def __init__(self, seed: int) -> None:
        self.history = History(seed)
        self.stage = Stage(seed, replicas=2 if seed % REPLICATED == REPLICATED - 1 else 1)
        self.rng, self.world, self.judge = self.stage.rng, self.stage.world, self.stage.judge
        self.created = 0

    @property
    def is_replicated(self) -> bool:
        """Whether two replicas share the work by a lease."""
        return len(self.stage.replicas) > 1

    def _tell(self, text: str) -> None:
        self.history.told.append(f"{self.world.now():%H:%M:%S.%f} {text}")

    # --- events ----------------------------------------------------------------------------------------------------
    def _edit_spec(self, change: Callable[[dict[str, Any]], Any], text: str) -> None:
        self._tell(text)
        self.world.edit(RAYCLUSTERS, NAME, None, lambda obj: change(obj["spec"]))

    def _any_group(self) -> str | None:
        cluster = self.world.cluster(NAME)
        names = [g["groupName"] for g in cluster["spec"].get("workerGroupSpecs") or []] if cluster else []
        return self.rng.choice(names) if names else None

    def _any_pod(self) -> str | None:
        cluster = self.world.cluster(NAME)
        pods = self.stage.census.members(cluster["metadata"]["uid"]) if cluster else []
        return self.rng.choice(sorted(pod.name for pod in pods)) if pods else None

    def scale(self) -> None:
        name, replicas = self._any_group(), self.rng.randint(0, 9)
        if name:
            self._edit_spec(lambda spec: find(spec, name).update(replicas=replicas), f"{name}: replicas {replicas}")

    def rebound(self) -> None:
        name = self._any_group()
        low, high = sorted((self.rng.randint(0, 6), self.rng.randint(0, 8)))
        if name:
            bounds = {"minReplicas": low, "maxReplicas": high}
            self._edit_spec(lambda spec: find(spec, name).update(bounds), f"{name}: {low}..{high}")

    def add_group(self) -> None:
        self.created += 1
        added = group(f"g{self.created}", self.rng.randint(0, 4))
        self._edit_spec(lambda spec: spec["workerGroupSpecs"].append(added), f"add {added['groupName']}")

    def remove_group(self) -> None:
        name = self._any_group()
        if name:
            self._edit_spec(lambda spec: spec["workerGroupSpecs"].remove(find(spec, name)), f"remove {name}")

    def name_workers(self) -> None:
        cluster = self.world.cluster(NAME)
        name = self._any_group()
        if not cluster or not name:
            return
        pods = sorted(pod.name for pod in self.stage.census.live_in(cluster["metadata"]["uid"], name))
        named = self.rng.sample(pods, min(len(pods), self.rng.randint(0, 3)))
        left = max(0, wanted(cluster)[name] - len(named))

        def order(spec: dict[str, Any]) -> None:
            find(spec, name).update(replicas=left, scaleStrategy={"workersToDelete": [*named, "stranger"]})

        self._edit_spec(order, f"{name}: delete {named}, replicas {left}")

    def pod_ends(self) -> None:
        name, phase = self._any_pod(), self.rng.choice(["Failed", "Succeeded"])
        if name:
            self._tell(f"{name} {phase}")
            self.world.kill_pod(name, phase)

    def pod_vanishes(self) -> None:
        name = self._any_pod()
        if name:
            self._tell(f"{name} vanishes")
            self.world.vanish(name)

    def lag(self) -> None:
        self.stage.lag_s = self.rng.choice([0.0, 0.5, 3.0, 10.0])
        self._tell(f"watch lag up to {self.stage.lag_s} s")

    def cut(self) -> None:
        self._tell("watches cut")
        for replica in self.stage.replicas:
            replica.wire.cut()

    def spoil(self) -> None:
        how = self.rng.choices(SPOILS, k=self.rng.randint(1, 3))
        self._tell(f"the next watch lines: {how}")
        self.rng.choice(self.stage.replicas).script.of_lines.extend(Rule(fault) for fault in how)

    def _for_a_while(
        self,
        fault: CallFault,
        matches: Callable[[Call], bool],
        for_s: float,
        text: str,
        replicas: Sequence[Replica] | None = None,
    ) -> None:
        self._tell(f"{text} for {for_s:.0f} s")
        until_s = self.stage.loop.time() + for_s
        for replica in replicas or self.stage.replicas:
            replica.script.of_calls.insert(0, Rule(fault, matches, times=None, until_s=until_s))

    def away(self) -> None:
        self._for_a_while(RefuseConnection(), lambda _: True, self.rng.choice([5.0, 60.0]), "the API is away")
        self.cut()

    def lease_away(self) -> None:
        """The leader cannot reach its lease, but everything else: only its gate keeps it from writing."""
        leader, fault = self.stage.leader(), self.rng.choice([LoseRequest(), LoseAnswer(), Answer(503)])
        self._for_a_while(fault, is_of_lease, self.rng.choice([25.0, 60.0]), f"no lease: {fault}", [leader])

    def cut_off(self) -> None:
        """One replica is alone, the other is not."""
        leader = self.stage.leader()
        self._for_a_while(LoseRequest(), lambda _: True, self.rng.choice([10.0, 45.0]), "leader cut off", [leader])
        leader.wire.cut()

    def replace(self) -> None:
        self._tell("the leader's pod is replaced")
        self.stage.leader().operator.replace()

    def reads_fail(self) -> None:
        self._for_a_while(Answer(503), lambda call: call.method == "GET", self.rng.choice([1.0, 20.0]), "reads fail")

    def rights_go(self) -> None:
        fault = self.rng.choice([FORBIDDEN, UNAUTHORIZED])
        self._for_a_while(fault, lambda _: True, self.rng.choice([2.0, 20.0]), f"every call is answered {fault.status}")

    def quota(self) -> None:
        most = self.rng.randint(1, 6)
        fault = Answer(403, message="exceeded quota: pods")
        self._for_a_while(fault, self._is_pod_above(most), self.rng.choice([5.0, 60.0]), f"quota of {most} pods")

    def _is_pod_above(self, most: int) -> Callable[[Call], bool]:
        def matches(call: Call) -> bool:
            is_create = call.method == "POST" and call.plural == "pods"
            return is_create and self.world.store.count("pods") >= most

        return matches

    def fault(self) -> None:
        # What a real server would reject by `?timeout=` when it comes too late, this one would carry out: with a lease a
        # write comes late inside that time only, whoever leads by then (FD:REL-D).
        late = (
            Delay(self.rng.choice([2.0, 9.0])) if self.is_replicated else CommitLate(self.rng.choice([0.5, 5.0, 20.0]))
        )
        kind, after = self.rng.choice([*FAULTS, late]), self.rng.randint(0, 5)
        self._tell(f"{kind} at write {after} from now")
        self.stage.leader().script.of_calls.append(Rule(kind, is_write, skip=after))

    def foreign_hands(self) -> None:
        """Others edit what belongs to the cluster (RM:F12)."""
        hands, pod = self.rng.choice(foreign_hands.HANDS), self._any_pod()
        if pod and self.world.cluster(NAME):
            self._tell(f"foreign hands: {hands.__name__} {pod}")
            hands(self.stage, pod)

    def restart(self) -> None:
        self._tell("operator killed")
        self.stage.kill()

    def recreate(self) -> None:
        self._tell("cluster deleted and made again")
        self.world.delete_cluster(NAME)
        self.world.create(new_cluster([group("a", 2)]))

    # --- the telling -----------------------------------------------------------------------------------------------
    async def tell(self) -> History:
        """Live through it; every finding is in the history returned."""
        with heard_by(self.judge):
            await self._live()
        self.history.violations = self.judge.violations
        self.history.last_writes = self.judge.writes
        return self.history

    async def _live(self) -> None:
        doings = [self.scale] * 6 + [self.rebound, self.add_group, self.remove_group] + [self.name_workers] * 3
        doings += [self.pod_ends] * 3 + [self.pod_vanishes, self.lag, self.lag, self.cut] + [self.fault] * 5
        doings += [self.restart, self.recreate, self.spoil, self.spoil, self.away, self.reads_fail, self.rights_go]
        doings += [self.quota] + [self.foreign_hands] * 3
        if self.is_replicated:
            doings += [self.lease_away, self.cut_off, self.replace] * 2
        self.stage.open()
        self.world.create(stranger())
        self.world.create(new_cluster([group("a", 2), group("b", 1)]))
        self.world.create(new_cluster([group("b", 1)], NEIGHBOUR))
        self.stage.start()
        events = EVENTS + self.rng.randint(0, 10)
        while len(self.history.told) < events and not self.judge.has_enough.is_set():
            self.rng.choice(doings)()
            await self.stage.pass_time(self.rng.choice([0.0, 0.05, 0.5, 2.0, 8.0]))
        for replica in self.stage.replicas:
            replica.script.clear()
        self.stage.lag_s = 0.0
        foreign_hands.let_go(self.world)
        await self._settle()
        if not self.judge.has_enough.is_set():
            await self._look_again()
        await self.stage.close()

    async def _settle(self) -> None:
        await self.stage.settle(SETTLE_S, step_s=1.0)
        for name in (NAME, NEIGHBOUR):
            if self.world.cluster(name) is None:
                self.judge.note(f"{name} is gone")
        if self.world.store.find("pods", NAMESPACE, "stranger") is None:
            self.judge.note("the stranger's pod is gone")

    async def _look_again(self) -> None:
        """A second pass, and a fresh operator, must find nothing to do."""
        # A watch that has gone deaf is noticed within a minute; what it hid is then done first.
        await self.stage.pass_time(150.0)
        await self._settle()
        await self.stage.pass_time(10.0)
        before = len(self.judge.writes)
        self.stage.leader().operator.enqueue(NAMESPACE, NAME)
        await self.stage.pass_time(10.0)
        self.stage.kill()
        await self.stage.pass_time(10.0)
        if later := self.judge.writes[before:]:
            self.judge.note(f"writes although all is as wanted: {later[:5]}")
