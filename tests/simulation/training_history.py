"""What happens to jobs that share a cluster in their lives?

Draws one history from a seed: at least sixteen events (jobs come, are edited, scaled, suspended, finished and deleted,
trainers fail, are evicted and vanish, machines are lost, cordoned and come, strangers come and go, watches lag or break, the
operator is killed at a write or never hears its answer), told to a running stage one by one; `only` leaves out all events
but some, which is how a red history is made short. Afterwards the troubles end, and everything must be as wanted (RM F15).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from raytide_sandbox.faults.script import Call, Rule
from raytide_sandbox.faults.types import Answer, CallFault, RefuseConnection

from simulation.history import FAULTS, SPOILS, is_write
from simulation.matrix import done
from simulation.stage import heard_by
from simulation.training_manifests import OTHER_NAMESPACE, new_job, new_pod, role
from simulation.training_stage import TrainingStage
from simulation.training_wishes import has_ended
from simulation.training_world import CPUS, JOBS
from simulation.world import NAMESPACE, Kubelets

EVENTS = 16
MORE_EVENTS = 8
"""No history has more failures than events: trainers that fail together fail once."""
SETTLE_S = 600.0
"""Pauses after failures grow to six minutes."""
DEAF_S = 150.0
JOB_NAMES = ("a", "b", "c")
NAMESPACES = (NAMESPACE, OTHER_NAMESPACE)
KUBELETS = Kubelets(start_s=(0.1, 3.0), end_s=(0.1, 1.0, 10.0))


@dataclass
class JobHistory:
    """One told history; `violations` says what went wrong, `told` what happened before."""

    seed: int
    told: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def report(self) -> str:
        """For the person who has to find out why."""
        return "\n".join([f"seed {self.seed}", *self.told, "--- violations", *self.violations[:20]])


class JobLife:
    """Tells one history."""

    def __init__(self, seed: int, only: Collection[int] | None = None) -> None:
        """`only`: the numbers of the events that happen; None: all of them."""
        self.history = JobHistory(seed)
        self.stage = TrainingStage(seed, kubelets=KUBELETS)
        self.rng, self.world, self.judge = self.stage.rng, self.stage.world, self.stage.judge
        self._only = only
        self._number = 0

    def _tell(self, text: str) -> None:
        self.history.told.append(f"{self.world.now():%H:%M:%S.%f} {self._number} {text}")

    # --- who ---------------------------------------------------------------------------------------------------------
    def _any_job(self) -> tuple[str, str] | None:
        found = [(job["metadata"]["name"], job["metadata"]["namespace"]) for job in self.stage.clusters()]
        return self.rng.choice(sorted(found)) if found else None

    def _edit(self, change: Callable[[dict[str, Any]], Any], text: str) -> None:
        found = self._any_job()
        if found:
            self._tell(f"{found[1]}/{found[0]}: {text}")
            self.world.edit_job(*found, lambda obj: change(obj["spec"]))

    def _any_pod(self) -> tuple[str, str] | None:
        found = self._any_job()
        job = self.world.job(*found) if found else None
        pods = sorted(pod.name for pod in self.stage.census.members(job["metadata"]["uid"])) if job else []
        return (self.rng.choice(pods), job["metadata"]["namespace"]) if job and pods else None

    # --- events ------------------------------------------------------------------------------------------------------
    def create(self) -> None:
        name, namespace = self.rng.choice(JOB_NAMES), self.rng.choice(NAMESPACES)
        low = self.rng.randint(1, 3)
        high, gpu = low + self.rng.choice([0, 2, 6, 10]), self.rng.choice([0, 0, 1])
        more: dict[str, Any] = {"scaling": {"rebalance": self.rng.random() < 0.3}, "backoffLimit": EVENTS + MORE_EVENTS}
        more["pendingTimeoutSeconds"] = self.rng.choice([30, 86_400, 86_400])
        if self.rng.random() < 0.3:
            more |= {"pserver": {"min-instance": 1, **role("500m")}, "master": role("500m")}
        job = new_job(name, low, high, namespace=namespace, gpu=gpu, cpu=self.rng.choice(["500m", "1", "2"]), **more)
        if self.world.job(name, namespace) is None:
            self._tell(f"{namespace}/{name} {low}..{high} {job['spec']}")
            self.world.create(job)

    def rebound(self) -> None:
        low = self.rng.randint(1, 3)
        high = low + self.rng.randint(0, 8)
        bounds = {"min-instance": low, "max-instance": high}
        self._edit(lambda spec: spec["trainer"].update(bounds), f"{low}..{high}")

    def scale(self) -> None:
        found, replicas = self._any_job(), self.rng.randint(0, 9)
        if found:
            self._tell(f"{found[1]}/{found[0]}: scaled to {replicas}")
            self.world.scale(*found, replicas)

    def suspend(self) -> None:
        is_suspended = self.rng.random() < 0.4
        self._edit(lambda spec: spec.update(suspend=is_suspended), f"suspend {is_suspended}")

    def finish(self) -> None:
        found = self._any_job()
        job = self.world.job(*found) if found else None
        if found and job:
            self._tell(f"{found[1]}/{found[0]}: all its data is gone through")
            self.world.finish(job["metadata"]["uid"])

    def delete(self) -> None:
        if found := self._any_job():
            self._tell(f"{found[1]}/{found[0]} deleted")
            self.world.delete(JOBS, *found)

    def pod_fails(self) -> None:
        if found := self._any_pod():
            self._tell(f"{found} fails")
            self.world.fail(*found)

    def peers_fail(self) -> None:
        """All of a job's pods exit because one of them is gone, as with NCCL."""
        found = self._any_job()
        job = self.world.job(*found) if found else None
        if found and job:
            self._tell(f"{found[1]}/{found[0]}: all of its pods fail")
            for pod in self.stage.census.members(job["metadata"]["uid"]):
                self.world.fail(pod.name, found[1])

    def pod_evicted(self) -> None:
        if found := self._any_pod():
            self._tell(f"{found} is evicted")
            self.world.evict_from(*found)

    def pod_vanishes(self) -> None:
        if found := self._any_pod():
            self._tell(f"{found} vanishes")
            self.world.vanish_from(*found)

    def stranger(self) -> None:
        name, cpu = f"web-{self.rng.randint(0, 5)}", self.rng.choice(["1", "3", "100"])
        if self.world.store.find("pods", NAMESPACE, name):
            self._tell(f"{name} goes")
            self.world.delete("pods", name, NAMESPACE)
            self.world.disturb()
        else:
            self._tell(f"{name} wants {cpu} CPUs")
            self.world.create(new_pod(name, cpu, job="a"))

    def machine(self) -> None:
        node = self.rng.choice(sorted(CPUS))
        if node in self.world.silent or self.world.store.find("nodes", "", node) is None:
            self._tell(f"{node} comes back")
            self.world.bury_node(node)
            self.world.bring_node(node)
        else:
            self._tell(f"{node} is lost")
            self.world.lose_node(node)

    def cordon(self) -> None:
        node, is_cordoned = self.rng.choice(sorted(CPUS)), self.rng.random() < 0.5
        self._tell(f"{node} cordoned: {is_cordoned}")
        self.world.cordon(node, is_cordoned=is_cordoned)

    def lag(self) -> None:
        self.stage.lag_s = self.rng.choice([0.0, 0.5, 3.0, 10.0])
        self.judge.is_view_trusted = False
        self._tell(f"watch lag up to {self.stage.lag_s} s")

    def cut(self) -> None:
        self._tell("watches cut")
        self.stage.wire.cut()

    def spoil(self) -> None:
        how = self.rng.choices(SPOILS, k=self.rng.randint(1, 3))
        self._tell(f"the next watch lines: {how}")
        self.judge.is_view_trusted = False
        self.stage.script.of_lines.extend(Rule(fault) for fault in how)

    def away(self) -> None:
        self._for_a_while(RefuseConnection(), lambda _: True, self.rng.choice([5.0, 60.0]), "the API is away")
        self.stage.wire.cut()

    def quota(self) -> None:
        most = self.rng.randint(1, 6)

        def is_above(call: Call) -> bool:
            is_create = call.method == "POST" and call.plural == "pods"
            return is_create and self.world.store.count("pods") >= most

        fault = Answer(403, message="exceeded quota: pods")
        self._for_a_while(fault, is_above, self.rng.choice([5.0, 40.0]), f"quota of {most} pods")

    def forbid(self) -> None:
        """As Pod Security, a webhook or a PriorityClass that is not there: one job's pods are rejected."""
        namespace = self.rng.choice(NAMESPACES)

        def is_meant(call: Call) -> bool:
            return call.method == "POST" and call.plural == "pods" and call.namespace == namespace

        fault = Answer(403, message="pods is forbidden: no PriorityClass with name gold was found")
        self._for_a_while(fault, is_meant, self.rng.choice([5.0, 100.0]), f"pods of {namespace} are rejected")

    def _for_a_while(self, fault: CallFault, matches: Callable[[Call], bool], for_s: float, text: str) -> None:
        self._tell(f"{text} for {for_s:.0f} s")
        self.judge.is_view_trusted = False
        until_s = self.stage.loop.time() + for_s
        self.stage.script.of_calls.insert(0, Rule(fault, matches, times=None, until_s=until_s))

    def fault(self) -> None:
        kind, after = self.rng.choice(FAULTS), self.rng.randint(0, 5)
        self._tell(f"{kind} at write {after} from now")
        self.stage.script.of_calls.append(Rule(kind, is_write, skip=after))

    def restart(self) -> None:
        self._tell("operator killed")
        self.stage.kill()

    # --- the telling -------------------------------------------------------------------------------------------------
    async def tell(self) -> JobHistory:
        """Live through it; every finding is in the history returned."""
        with heard_by(self.judge):
            await self._live()
        self.history.violations = self.judge.violations
        return self.history

    async def _live(self) -> None:
        doings = [self.create] * 5 + [self.rebound, self.scale, self.suspend] * 2 + [self.finish, self.delete]
        doings += [self.pod_fails, self.peers_fail, self.pod_evicted, self.pod_vanishes, self.stranger, self.stranger]
        doings += [self.machine, self.cordon, self.lag, self.cut, self.spoil, self.away, self.quota, self.forbid]
        doings += [self.fault] * 5 + [self.restart]
        self.stage.open()
        self.create()
        self.stage.start()
        for number in range(EVENTS + self.rng.randint(0, MORE_EVENTS)):
            self._number = number
            doing, wait_s = self.rng.choice(doings), self.rng.choice([0.0, 0.05, 0.5, 2.0, 8.0, 30.0])
            if self._only is None or number in self._only:
                doing()
                await self.stage.pass_time(wait_s)
            if self.judge.has_enough.is_set():
                break
        await self._end()
        await self.stage.close()

    async def _end(self) -> None:
        """The troubles are over: everything comes to rest, and a fresh operator finds nothing to do."""
        self.stage.script.clear()
        self.stage.lag_s = 0.0
        for node in sorted(CPUS):
            if node in self.world.silent:
                self.world.bury_node(node)
                self.world.bring_node(node)
        await self.stage.settle(SETTLE_S, step_s=1.0)
        # A watch that has gone deaf is noticed within a minute; what it hid is then done first.
        await self.stage.pass_time(DEAF_S)
        await self.stage.settle(SETTLE_S, step_s=1.0)
        if self.judge.has_enough.is_set():
            return
        self._judge_ends()
        await self.stage.pass_time(40.0)
        before = len(self.judge.writes)
        self.stage.kill()
        await self.stage.pass_time(20.0)
        if later := done(self.stage, before):
            self.judge.note(f"writes although all is as wanted: {later[:5]}")

    def _judge_ends(self) -> None:
        """A job ended because its work was done, never because the cluster or its users moved it about."""
        for job in self.stage.clusters():
            whose = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
            if has_ended(job) and job["metadata"]["uid"] not in self.world.finishing:
                self.judge.note(f"{whose} has ended, and nobody knows why: {job.get('status')}")
