"""What happens to a RayCluster in its life?

Draws one history from a seed: at least twenty events (edits by users and autoscalers, pods that die, watches that lag
or break, an operator that is killed at a write or never hears its answer), told to a running world and operator one by
one. Afterwards the troubles end, the world is given time, and everything must be exactly as wanted. Same seed, same
history.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from simulation.invariants import Judge, wanted
from simulation.operator_under_test import OperatorUnderTest, WorldClock
from simulation.wire import SPOILS, Fault, Faulty, InProcess, Script
from simulation.world import NAMESPACE, RAYCLUSTERS, World, is_alive

EVENTS = 20
SETTLE_S = 240.0
FAULTS = ("kill-before", "kill-after", "lost-request", "lost-answer", "late-commit", "409", "429", "500", "503", "504")
NAME = "life"
NEIGHBOUR = "life-a"
"""Another cluster whose name begins like the first one's, and like its pods."""


def template(name: str) -> dict[str, Any]:
    """The smallest pod template that a user would write."""
    return {"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.60.0"}]}}


def group(name: str, replicas: int) -> dict[str, Any]:
    """A worker group as users write it."""
    return {"groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 8, "template": template("worker")}


def new_cluster(groups: list[dict[str, Any]], name: str = NAME) -> dict[str, Any]:
    """A RayCluster as users write it."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"rayVersion": "2.60.0", "headGroupSpec": {"template": template("head")}, "workerGroupSpecs": groups},
    }


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
        self.rng = random.Random(seed)
        self.history = History(seed)
        self.world = World(self.rng)
        self.lag_s = 0.0
        self.script = Script()
        self.wire = InProcess(self.world.api, lag_s=lambda: self.rng.uniform(0.0, self.lag_s) if self.lag_s else 0.0)
        self.judge = Judge(self.world, Faulty(self.wire, self.script, kill=self._kill))
        clock = WorldClock(self.world.now)
        self.script.on_late_commit = self.judge.expect_late
        self.operator = OperatorUnderTest(self.judge, clock, self.rng, self.judge.violations.append)
        self.created = 0

    def _kill(self) -> None:
        self._tell("operator killed at a write")
        self.operator.kill()

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
        pods = self.world.pods(cluster["metadata"]["uid"]) if cluster else []
        return self.rng.choice(sorted(p["metadata"]["name"] for p in pods)) if pods else None

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
        pods = [p["metadata"]["name"] for p in self.world.pods(cluster["metadata"]["uid"]) if is_in(p, name)]
        named = self.rng.sample(sorted(pods), min(len(pods), self.rng.randint(0, 3)))
        left = max(0, wanted(cluster["spec"])[name] - len(named))

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
        self.lag_s = self.rng.choice([0.0, 0.5, 3.0, 10.0])
        self._tell(f"watch lag up to {self.lag_s} s")

    def cut(self) -> None:
        self._tell("watches cut")
        self.wire.cut()

    def spoil(self) -> None:
        how = self.rng.choices(SPOILS, k=self.rng.randint(1, 3))
        self._tell(f"the next watch lines: {how}")
        self.wire.spoils = how

    def away(self) -> None:
        for_s = self.rng.choice([5.0, 60.0])
        self._tell(f"the API is away for {for_s:.0f} s")
        self.script.away_until = asyncio.get_running_loop().time() + for_s
        self.wire.cut()

    def reads_fail(self) -> None:
        for_s = self.rng.choice([1.0, 20.0])
        self._tell(f"reads fail for {for_s:.0f} s")
        self.script.reads_sick_until = asyncio.get_running_loop().time() + for_s

    def fault(self) -> None:
        self.script.delay_s = self.rng.choice([0.5, 5.0, 20.0])
        kind, after = self.rng.choice(FAULTS), self.rng.randint(0, 5)
        self._tell(f"{kind} at write {after} from now")
        self.script.coming = [None] * after + [Fault(kind)]

    def restart(self) -> None:
        self._tell("operator killed")
        self.operator.kill()

    def recreate(self) -> None:
        self._tell("cluster deleted and made again")
        self.world.store.delete(RAYCLUSTERS, NAMESPACE, NAME)
        self.world.create(new_cluster([group("a", 2)]))

    # --- the telling -----------------------------------------------------------------------------------------------
    async def tell(self) -> History:
        """Live through it; every finding is in the history returned."""
        doings = [self.scale] * 6 + [self.rebound, self.add_group, self.remove_group] + [self.name_workers] * 3
        doings += [self.pod_ends] * 3 + [self.pod_vanishes, self.lag, self.lag, self.cut] + [self.fault] * 5
        doings += [self.restart, self.recreate, self.spoil, self.spoil, self.away, self.reads_fail]
        controllers = asyncio.create_task(self.world.run_controllers())
        self.world.create(stranger())
        self.world.create(new_cluster([group("a", 2), group("b", 1)]))
        self.world.create(new_cluster([group("b", 1)], NEIGHBOUR))
        self.operator.start()
        events = EVENTS + self.rng.randint(0, 10)
        while len(self.history.told) < events and not self.judge.has_enough.is_set():
            self.rng.choice(doings)()
            await self._pass_time(self.rng.choice([0.0, 0.05, 0.5, 2.0, 8.0]))
        self.script.coming.clear()
        self.wire.spoils.clear()
        self.script.away_until = self.script.reads_sick_until = self.lag_s = 0.0
        await self._settle()
        if not self.judge.has_enough.is_set():
            await self._look_again()
        await self.operator.stop()
        if controllers.done():
            self.judge.violations.append(f"the world's own controllers ended: {controllers.exception()!r}")
        controllers.cancel()
        self.history.violations = self.judge.violations
        self.history.last_writes = self.judge.writes
        return self.history

    async def _pass_time(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.judge.has_enough.wait(), seconds)

    def _difference(self) -> str:
        if self.world.store.find("pods", NAMESPACE, "stranger") is None:
            return "the stranger's pod is gone"
        return self._difference_of(NAME) or self._difference_of(NEIGHBOUR)

    def _difference_of(self, cluster_name: str) -> str:
        cluster = self.world.cluster(cluster_name)
        if cluster is None:
            return f"{cluster_name} is gone"
        pods = self.world.pods(cluster["metadata"]["uid"])
        have: dict[str, int] = {}
        for pod in pods:
            name = pod["metadata"]["labels"]["ray.io/group"]
            have[name] = have.get(name, 0) + 1
        want = {"headgroup": 1, **{k: v for k, v in wanted(cluster["spec"]).items() if v}}
        if have != want:
            return f"{cluster_name}: have {have}, want {want}"
        service = self.world.store.find("services", NAMESPACE, f"{cluster_name}-head-svc")
        if service is None or service.owners != (cluster["metadata"]["uid"],):
            return f"the head service of {cluster_name} is missing or another cluster's"
        return "" if all(is_alive(p) for p in pods) else "pods that ended are still there"

    async def _settle(self) -> None:
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        while (
            not self.judge.has_enough.is_set() and self._difference() and asyncio.get_running_loop().time() < deadline
        ):
            await self._pass_time(1.0)
        if difference := self._difference():
            self.judge.violations.append(f"not as wanted {SETTLE_S:.0f} s after the last fault: {difference}")

    async def _look_again(self) -> None:
        """A second pass, and a fresh operator, must find nothing to do."""
        # A watch that has gone deaf is noticed within a minute; what it hid is then done first.
        await asyncio.sleep(150.0)
        await self._settle()
        await asyncio.sleep(10.0)
        before = len(self.judge.writes)
        self.operator.ring(NAMESPACE, NAME)
        await asyncio.sleep(10.0)
        self.operator.kill()
        await asyncio.sleep(10.0)
        if later := self.judge.writes[before:]:
            self.judge.violations.append(f"writes although all is as wanted: {later[:5]}")


def find(spec: dict[str, Any], name: str) -> dict[str, Any]:
    """The worker group of that name."""
    return next(g for g in spec["workerGroupSpecs"] if g["groupName"] == name)


def is_in(pod: dict[str, Any], name: str) -> bool:
    """Whether the pod is a live member of the group."""
    return pod["metadata"]["labels"].get("ray.io/group") == name and is_alive(pod)


def stranger() -> dict[str, Any]:
    """A pod that is not ours, although its labels say so."""
    labels = {"ray.io/cluster": NAME, "ray.io/node-type": "worker", "ray.io/group": "a", "ray.io/is-ray-node": "yes"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "namespace": NAMESPACE, "labels": labels},
        "spec": template("stranger")["spec"],
    }
