"""Random history of TrainingJobs that share a cluster.

Draws at least sixteen events from a seed: jobs are created, edited, scaled, suspended, finished and deleted; trainers fail,
are evicted and deleted by force; nodes are lost, cordoned and added; pods of other workloads are created and deleted;
watches lag or break; the operator is killed at a write or its response is lost. `only` keeps some of the events, by which a
failing history is shortened. Then the faults end, and the cluster must reach the desired state (RM F15).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from support.faults.script import Call, Rule
from support.faults.types import Answer, CallFault, RefuseConnection

from simulation.environment import log_errors_as_violations
from simulation.fault_matrix import accepted_writes
from simulation.history import CALL_FAULTS, WATCH_FAULTS, is_write
from simulation.simulated_kube import NAMESPACE, Kubelets
from simulation.training_desired_state import has_ended
from simulation.training_environment import TrainingEnvironment
from simulation.training_kube import CPUS, JOBS
from simulation.training_manifests import OTHER_NAMESPACE, new_job, new_pod, role

EVENTS = 16
MORE_EVENTS = 8
"""The back-off limit exceeds the number of events: trainers that fail together count once."""
SETTLE_S = 600.0
"""Back-offs after failures grow to six minutes."""
WATCH_TIMEOUT_S = 150.0
JOB_NAMES = ("a", "b", "c")
NAMESPACES = (NAMESPACE, OTHER_NAMESPACE)
KUBELETS = Kubelets(start_s=(0.1, 3.0), end_s=(0.1, 1.0, 10.0))


@dataclass
class JobHistory:
    """Log of the events and violations of one history."""

    seed: int
    log: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def report(self) -> str:
        """The text for the failure of the test."""
        return "\n".join([f"seed {self.seed}", *self.log, "--- violations", *self.violations[:20]])


class JobHistoryRunner:
    """Draws and runs the events of one history."""

    def __init__(self, seed: int, only: Collection[int] | None = None) -> None:
        """`only`: the numbers of the events that are run; None: all of them."""
        self.history = JobHistory(seed)
        self.env = TrainingEnvironment(seed, kubelets=KUBELETS)
        self.rng, self.kube, self.checks = self.env.rng, self.env.kube, self.env.checks
        self._only = only
        self._number = 0

    def _log(self, text: str) -> None:
        self.history.log.append(f"{self.kube.now():%H:%M:%S.%f} {self._number} {text}")

    # --- drawn objects ---------------------------------------------------------------------------------------------------------
    def _any_job(self) -> tuple[str, str] | None:
        found = [(job["metadata"]["name"], job["metadata"]["namespace"]) for job in self.env.clusters()]
        return self.rng.choice(sorted(found)) if found else None

    def _edit(self, change: Callable[[dict[str, Any]], Any], text: str) -> None:
        found = self._any_job()
        if found:
            self._log(f"{found[1]}/{found[0]}: {text}")
            self.kube.edit_job(*found, lambda obj: change(obj["spec"]))

    def _any_pod(self) -> tuple[str, str] | None:
        found = self._any_job()
        job = self.kube.job(*found) if found else None
        pods = sorted(pod.name for pod in self.env.pod_tracker.all_pods(job["metadata"]["uid"])) if job else []
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
        if self.kube.job(name, namespace) is None:
            self._log(f"{namespace}/{name} {low}..{high} {job['spec']}")
            self.kube.create(job)

    def change_bounds(self) -> None:
        low = self.rng.randint(1, 3)
        high = low + self.rng.randint(0, 8)
        bounds = {"min-instance": low, "max-instance": high}
        self._edit(lambda spec: spec["trainer"].update(bounds), f"{low}..{high}")

    def scale(self) -> None:
        found, replicas = self._any_job(), self.rng.randint(0, 9)
        if found:
            self._log(f"{found[1]}/{found[0]}: scaled to {replicas}")
            self.kube.scale(*found, replicas)

    def suspend(self) -> None:
        is_suspended = self.rng.random() < 0.4
        self._edit(lambda spec: spec.update(suspend=is_suspended), f"suspend {is_suspended}")

    def finish_job(self) -> None:
        found = self._any_job()
        job = self.kube.job(*found) if found else None
        if found and job:
            self._log(f"{found[1]}/{found[0]}: all of its data is processed")
            self.kube.finish_job(job["metadata"]["uid"])

    def delete(self) -> None:
        if found := self._any_job():
            self._log(f"{found[1]}/{found[0]} deleted")
            self.kube.delete(JOBS, *found)

    def fail_one_pod(self) -> None:
        if found := self._any_pod():
            self._log(f"{found} fails")
            self.kube.fail_pod(*found)

    def fail_all_pods(self) -> None:
        """All of a job's pods exit because one of them is gone, as with NCCL."""
        found = self._any_job()
        job = self.kube.job(*found) if found else None
        if found and job:
            self._log(f"{found[1]}/{found[0]}: all of its pods fail")
            for pod in self.env.pod_tracker.all_pods(job["metadata"]["uid"]):
                self.kube.fail_pod(pod.name, found[1])

    def evict_one_pod(self) -> None:
        if found := self._any_pod():
            self._log(f"{found} is evicted")
            self.kube.evict_pod_in(*found)

    def force_delete_pod(self) -> None:
        if found := self._any_pod():
            self._log(f"{found} is deleted by force")
            self.kube.force_delete_pod_in(*found)

    def create_or_delete_other_pod(self) -> None:
        name, cpu = f"web-{self.rng.randint(0, 5)}", self.rng.choice(["1", "3", "100"])
        if self.kube.store.find("pods", NAMESPACE, name):
            self._log(f"{name} is deleted")
            self.kube.delete("pods", name, NAMESPACE)
            self.kube.mark_capacity_changed()
        else:
            self._log(f"{name} requests {cpu} CPUs")
            self.kube.create(new_pod(name, cpu, job="a"))

    def lose_or_restore_node(self) -> None:
        node = self.rng.choice(sorted(CPUS))
        if node in self.kube.stopped_kubelets or self.kube.store.find("nodes", "", node) is None:
            self._log(f"{node} is added again")
            self.kube.delete_node(node)
            self.kube.add_node(node)
        else:
            self._log(f"{node} is lost")
            self.kube.lose_node(node)

    def cordon(self) -> None:
        node, is_cordoned = self.rng.choice(sorted(CPUS)), self.rng.random() < 0.5
        self._log(f"{node} cordoned: {is_cordoned}")
        self.kube.cordon(node, is_cordoned=is_cordoned)

    def set_watch_lag(self) -> None:
        self.env.lag_s = self.rng.choice([0.0, 0.5, 3.0, 10.0])
        self.checks.has_full_view = False
        self._log(f"watch lag up to {self.env.lag_s} s")

    def close_watches(self) -> None:
        self._log("watches cut")
        self.env.transport.close_watches()

    def break_watches(self) -> None:
        how = self.rng.choices(WATCH_FAULTS, k=self.rng.randint(1, 3))
        self._log(f"the next watch events: {how}")
        self.checks.has_full_view = False
        self.env.script.of_lines.extend(Rule(fault) for fault in how)

    def api_unavailable(self) -> None:
        self._inject_for(RefuseConnection(), lambda _: True, self.rng.choice([5.0, 60.0]), "the API is unreachable")
        self.env.transport.close_watches()

    def set_quota(self) -> None:
        most = self.rng.randint(1, 6)

        def is_above(call: Call) -> bool:
            is_create = call.method == "POST" and call.plural == "pods"
            return is_create and self.kube.store.count("pods") >= most

        fault = Answer(403, message="exceeded quota: pods")
        self._inject_for(fault, is_above, self.rng.choice([5.0, 40.0]), f"quota of {most} pods")

    def reject_pods(self) -> None:
        """Reject the pods of one namespace, as Pod Security, a webhook or a missing PriorityClass do."""
        namespace = self.rng.choice(NAMESPACES)

        def is_rejected(call: Call) -> bool:
            return call.method == "POST" and call.plural == "pods" and call.namespace == namespace

        fault = Answer(403, message="pods is forbidden: no PriorityClass with name gold was found")
        self._inject_for(fault, is_rejected, self.rng.choice([5.0, 100.0]), f"pods of {namespace} are rejected")

    def _inject_for(self, fault: CallFault, matches: Callable[[Call], bool], for_s: float, text: str) -> None:
        self._log(f"{text} for {for_s:.0f} s")
        self.checks.has_full_view = False
        until_s = self.env.loop.time() + for_s
        self.env.script.of_calls.insert(0, Rule(fault, matches, times=None, until_s=until_s))

    def inject_call_fault(self) -> None:
        kind, after = self.rng.choice(CALL_FAULTS), self.rng.randint(0, 5)
        self._log(f"{kind} at write {after} from now")
        self.env.script.of_calls.append(Rule(kind, is_write, skip=after))

    def kill_operator(self) -> None:
        self._log("operator killed")
        self.env.kill()

    # --- running =-------------------------------------------------------------------------------------------------
    async def run(self) -> JobHistory:
        """Run the history; the result has its violations."""
        with log_errors_as_violations(self.checks):
            await self._run_events()
        self.history.violations = self.checks.violations
        return self.history

    async def _run_events(self) -> None:
        event_choices = (
            [self.create] * 5 + [self.change_bounds, self.scale, self.suspend] * 2 + [self.finish_job, self.delete]
        )
        event_choices += [
            self.fail_one_pod,
            self.fail_all_pods,
            self.evict_one_pod,
            self.force_delete_pod,
            self.create_or_delete_other_pod,
            self.create_or_delete_other_pod,
        ]
        event_choices += [
            self.lose_or_restore_node,
            self.cordon,
            self.set_watch_lag,
            self.close_watches,
            self.break_watches,
            self.api_unavailable,
            self.set_quota,
            self.reject_pods,
        ]
        event_choices += [self.inject_call_fault] * 5 + [self.kill_operator]
        self.env.open()
        self.create()
        self.env.start()
        for number in range(EVENTS + self.rng.randint(0, MORE_EVENTS)):
            self._number = number
            event, wait_s = self.rng.choice(event_choices), self.rng.choice([0.0, 0.05, 0.5, 2.0, 8.0, 30.0])
            if self._only is None or number in self._only:
                event()
                await self.env.pass_time(wait_s)
            if self.checks.limit_reached.is_set():
                break
        await self._end_faults()
        await self.env.close()

    async def _end_faults(self) -> None:
        """End all faults; check the desired state, and that a restarted operator writes nothing."""
        self.env.script.clear()
        self.env.lag_s = 0.0
        for node in sorted(CPUS):
            if node in self.kube.stopped_kubelets:
                self.kube.delete_node(node)
                self.kube.add_node(node)
        await self.env.settle(SETTLE_S, step_s=1.0)
        # A silent watch is detected within a minute; the events that it missed are handled first.
        await self.env.pass_time(WATCH_TIMEOUT_S)
        await self.env.settle(SETTLE_S, step_s=1.0)
        if self.checks.limit_reached.is_set():
            return
        self._check_ended_jobs()
        await self.env.pass_time(40.0)
        # A gang whose minimum did not start in time may just have released its capacity.
        await self.env.settle(SETTLE_S, step_s=1.0)
        before = len(self.checks.writes)
        self.env.kill()
        await self.env.pass_time(20.0)
        if later := accepted_writes(self.env, before):
            self.checks.add_violation(f"writes in the desired state: {later[:5]}")

    def _check_ended_jobs(self) -> None:
        """Check that jobs ended only because their data was processed."""
        for job in self.env.clusters():
            job_name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
            if has_ended(job) and job["metadata"]["uid"] not in self.kube.finished_jobs:
                self.checks.add_violation(f"{job_name} has ended without a reason: {job.get('status')}")
