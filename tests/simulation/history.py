"""Random history of a RayCluster.

Draws at least twenty events from a seed: edits by users, the autoscaler and concurrent writers, pods that fail, quotas,
watches that lag or break, an operator that is killed at a write or whose response is lost. Then the faults end, and the
cluster must reach exactly the desired state. The same seed gives the same history.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.faults.script import Call, Rule
from support.faults.types import (
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

from simulation import concurrent_writers
from simulation.desired_state import desired_workers
from simulation.environment import Environment, Replica, log_errors_as_violations
from simulation.manifests import EXTERNAL_POD, NAME, OTHER_NAME, find, group, new_cluster, unowned_pod
from simulation.simulated_kube import NAMESPACE, RAYCLUSTERS

EVENTS = 20
REPLICATED_EVERY = 4
"""Every fourth history has two replicas with leader election."""
SETTLE_S = 240.0
CALL_FAULTS: tuple[CallFault, ...] = (
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
WATCH_FAULTS: tuple[WatchFault, ...] = (
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
"""Faults of watch events. None is dropped for good: an API server never does that to an open watch."""


def is_write(call: Call) -> bool:
    """Whether it is a write, except of events, for which no caller waits, and of the lease."""
    return call.is_write and call.plural not in ("events", "leases")


def is_lease_call(call: Call) -> bool:
    """Whether it is a call for the lease."""
    return call.plural == "leases"


@dataclass
class History:
    """Log of the events and violations of one history."""

    seed: int
    log: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    last_writes: list[str] = field(default_factory=list)

    def report(self) -> str:
        """The text for the failure of the test."""
        lines = [f"seed {self.seed}", *self.log[-60:], "--- violations", *self.violations[:20]]
        return "\n".join([*lines, "--- last writes", *self.last_writes[-20:]])


class HistoryRunner:
    """Draws and runs the events of one history."""

    def __init__(self, seed: int) -> None:
        self.history = History(seed)
        self.env = Environment(seed, replicas=2 if seed % REPLICATED_EVERY == REPLICATED_EVERY - 1 else 1)
        self.rng, self.kube, self.checks = self.env.rng, self.env.kube, self.env.checks
        self.created = 0

    @property
    def is_replicated(self) -> bool:
        """Whether there are two replicas with leader election."""
        return len(self.env.replicas) > 1

    def _log(self, text: str) -> None:
        self.history.log.append(f"{self.kube.now():%H:%M:%S.%f} {text}")

    # --- events ----------------------------------------------------------------------------------------------------
    def _edit_spec(self, change: Callable[[dict[str, Any]], Any], text: str) -> None:
        self._log(text)
        self.kube.edit(RAYCLUSTERS, NAME, None, lambda obj: change(obj["spec"]))

    def _any_group(self) -> str | None:
        cluster = self.kube.cluster(NAME)
        names = [g["groupName"] for g in cluster["spec"].get("workerGroupSpecs") or []] if cluster else []
        return self.rng.choice(names) if names else None

    def _any_pod(self) -> str | None:
        cluster = self.kube.cluster(NAME)
        pods = self.env.pod_tracker.all_pods(cluster["metadata"]["uid"]) if cluster else []
        return self.rng.choice(sorted(pod.name for pod in pods)) if pods else None

    def scale_group(self) -> None:
        name, replicas = self._any_group(), self.rng.randint(0, 9)
        if name:
            self._edit_spec(lambda spec: find(spec, name).update(replicas=replicas), f"{name}: replicas {replicas}")

    def change_bounds(self) -> None:
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

    def delete_workers_by_name(self) -> None:
        cluster = self.kube.cluster(NAME)
        name = self._any_group()
        if not cluster or not name:
            return
        pods = sorted(pod.name for pod in self.env.pod_tracker.live_pods(cluster["metadata"]["uid"], name))
        named = self.rng.sample(pods, min(len(pods), self.rng.randint(0, 3)))
        left = max(0, desired_workers(cluster)[name] - len(named))

        def set_names(spec: dict[str, Any]) -> None:
            find(spec, name).update(replicas=left, scaleStrategy={"workersToDelete": [*named, EXTERNAL_POD]})

        self._edit_spec(set_names, f"{name}: delete {named}, replicas {left}")

    def pod_ends(self) -> None:
        name, phase = self._any_pod(), self.rng.choice(["Failed", "Succeeded"])
        if name:
            self._log(f"{name} {phase}")
            self.kube.end_pod(name, phase)

    def force_delete_pod(self) -> None:
        name = self._any_pod()
        if name:
            self._log(f"{name} deleted by force")
            self.kube.force_delete_pod(name)

    def set_watch_lag(self) -> None:
        self.env.lag_s = self.rng.choice([0.0, 0.5, 3.0, 10.0])
        self._log(f"watch lag up to {self.env.lag_s} s")

    def close_watches(self) -> None:
        self._log("watches cut")
        for replica in self.env.replicas:
            replica.transport.close_watches()

    def break_watches(self) -> None:
        how = self.rng.choices(WATCH_FAULTS, k=self.rng.randint(1, 3))
        self._log(f"the next watch events: {how}")
        self.rng.choice(self.env.replicas).script.of_lines.extend(Rule(fault) for fault in how)

    def _inject_for(
        self,
        fault: CallFault,
        matches: Callable[[Call], bool],
        for_s: float,
        text: str,
        replicas: Sequence[Replica] | None = None,
    ) -> None:
        self._log(f"{text} for {for_s:.0f} s")
        until_s = self.env.loop.time() + for_s
        for replica in replicas or self.env.replicas:
            replica.script.of_calls.insert(0, Rule(fault, matches, times=None, until_s=until_s))

    def api_unavailable(self) -> None:
        self._inject_for(RefuseConnection(), lambda _: True, self.rng.choice([5.0, 60.0]), "the API is unreachable")
        self.close_watches()

    def lease_unreachable(self) -> None:
        """The leader can reach everything except its lease: only the write gate prevents its writes."""
        leader, fault = self.env.leader(), self.rng.choice([LoseRequest(), LoseAnswer(), Answer(503)])
        self._inject_for(fault, is_lease_call, self.rng.choice([25.0, 60.0]), f"no lease: {fault}", [leader])

    def isolate_leader(self) -> None:
        """The leader cannot reach the API server, the other replica can."""
        leader = self.env.leader()
        self._inject_for(LoseRequest(), lambda _: True, self.rng.choice([10.0, 45.0]), "leader isolated", [leader])
        leader.transport.close_watches()

    def replace_leader(self) -> None:
        self._log("the leader's pod is replaced")
        self.env.leader().operator.replace()

    def fail_reads(self) -> None:
        self._inject_for(Answer(503), lambda call: call.method == "GET", self.rng.choice([1.0, 20.0]), "reads fail")

    def revoke_permissions(self) -> None:
        fault = self.rng.choice([FORBIDDEN, UNAUTHORIZED])
        self._inject_for(fault, lambda _: True, self.rng.choice([2.0, 20.0]), f"every call is answered {fault.status}")

    def set_quota(self) -> None:
        most = self.rng.randint(1, 6)
        fault = Answer(403, message="exceeded quota: pods")
        self._inject_for(fault, self._is_pod_above(most), self.rng.choice([5.0, 60.0]), f"quota of {most} pods")

    def _is_pod_above(self, most: int) -> Callable[[Call], bool]:
        def matches(call: Call) -> bool:
            is_create = call.method == "POST" and call.plural == "pods"
            return is_create and self.kube.store.count("pods") >= most

        return matches

    def inject_call_fault(self) -> None:
        # What a real server would reject by `?timeout=` when it comes too late, this one would carry out: with a lease a
        # write comes late inside that time only, even under another leader (FD:REL-D).
        late = (
            Delay(self.rng.choice([2.0, 9.0])) if self.is_replicated else CommitLate(self.rng.choice([0.5, 5.0, 20.0]))
        )
        kind, after = self.rng.choice([*CALL_FAULTS, late]), self.rng.randint(0, 5)
        self._log(f"{kind} at write {after} from now")
        self.env.leader().script.of_calls.append(Rule(kind, is_write, skip=after))

    def concurrent_edit(self) -> None:
        """A concurrent writer edits objects of the cluster (RM:F12)."""
        concurrent_edit, pod = self.rng.choice(concurrent_writers.CONCURRENT_EDITS), self._any_pod()
        if pod and self.kube.cluster(NAME):
            self._log(f"concurrent edit: {concurrent_edit.__name__} {pod}")
            concurrent_edit(self.env, pod)

    def kill_operator(self) -> None:
        self._log("operator killed")
        self.env.kill()

    def recreate_cluster(self) -> None:
        self._log("cluster deleted and recreated")
        self.kube.delete_cluster(NAME)
        self.kube.create(new_cluster([group("a", 2)]))

    # --- running =-----------------------------------------------------------------------------------------------
    async def run(self) -> History:
        """Run the history; the result has its violations."""
        with log_errors_as_violations(self.checks):
            await self._run_events()
        self.history.violations = self.checks.violations
        self.history.last_writes = self.checks.writes
        return self.history

    async def _run_events(self) -> None:
        event_choices = (
            [self.scale_group] * 6
            + [self.change_bounds, self.add_group, self.remove_group]
            + [self.delete_workers_by_name] * 3
        )
        event_choices += (
            [self.pod_ends] * 3
            + [self.force_delete_pod, self.set_watch_lag, self.set_watch_lag, self.close_watches]
            + [self.inject_call_fault] * 5
        )
        event_choices += [
            self.kill_operator,
            self.recreate_cluster,
            self.break_watches,
            self.break_watches,
            self.api_unavailable,
            self.fail_reads,
            self.revoke_permissions,
        ]
        event_choices += [self.set_quota] + [self.concurrent_edit] * 3
        if self.is_replicated:
            event_choices += [self.lease_unreachable, self.isolate_leader, self.replace_leader] * 2
        self.env.open()
        self.kube.create(unowned_pod())
        self.kube.create(new_cluster([group("a", 2), group("b", 1)]))
        self.kube.create(new_cluster([group("b", 1)], OTHER_NAME))
        self.env.start()
        events = EVENTS + self.rng.randint(0, 10)
        while len(self.history.log) < events and not self.checks.limit_reached.is_set():
            self.rng.choice(event_choices)()
            await self.env.pass_time(self.rng.choice([0.0, 0.05, 0.5, 2.0, 8.0]))
        for replica in self.env.replicas:
            replica.script.clear()
        self.env.lag_s = 0.0
        concurrent_writers.remove_finalizers(self.kube)
        await self._settle()
        if not self.checks.limit_reached.is_set():
            await self._check_no_further_writes()
        await self.env.close()

    async def _settle(self) -> None:
        await self.env.settle(SETTLE_S, step_s=1.0)
        for name in (NAME, OTHER_NAME):
            if self.kube.cluster(name) is None:
                self.checks.add_violation(f"{name} is missing")
        if self.kube.store.find("pods", NAMESPACE, EXTERNAL_POD) is None:
            self.checks.add_violation("the external pod is missing")

    async def _check_no_further_writes(self) -> None:
        """Check that a second pass and a restarted operator write nothing."""
        # A silent watch is detected within a minute; the events that it missed are handled first.
        await self.env.pass_time(150.0)
        await self._settle()
        await self.env.pass_time(10.0)
        before = len(self.checks.writes)
        self.env.leader().operator.enqueue(NAMESPACE, NAME)
        await self.env.pass_time(10.0)
        self.env.kill()
        await self.env.pass_time(10.0)
        if later := self.checks.writes[before:]:
            self.checks.add_violation(f"writes in the desired state: {later[:5]}")
