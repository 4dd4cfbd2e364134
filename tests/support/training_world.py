"""Simulation of training jobs on a cluster in virtual time: nodes, pods, a scheduler, and jobs that make progress.

A small discrete-event simulation: `World.run` takes events in the order of their time; nothing sleeps, and what is
random comes from a seed. Pods are bound to the node with the largest free share, as kube-scheduler's defaults do, unless the
circumstances say otherwise; what fits nowhere is tried again after a back-off that doubles (Kubernetes 1.6), or as soon as something is freed (today's). Who decides sizes is a
`Policy` (training_policies.py), which sees only what an autoscaler would. Used by tests and benchmarks.
"""

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol, TypeAlias

MASTER, PSERVER, TRAINER, SERVICE = "master", "pserver", "trainer", "service"
NAMESPACE = "lab"
SERVICE_PRIORITY = 1000
"""Of what is not training: web servers go before."""


@dataclass(frozen=True)
class Ask:
    """What one pod requests; its limits are the same."""

    cpu_millis: int
    memory_mib: int


@dataclass(frozen=True)
class Submission:
    """One training job as its user submits it."""

    name: str
    at_s: float
    low: int
    high: int
    trainer: Ask
    initial: int
    """Trainers it starts with, before it is scaled."""
    pservers: int = 0
    pserver: Ask = Ask(0, 0)
    master: Ask | None = None
    work_s: float | None = None
    """Seconds of one trainer; any number of trainers shares them. None: it never ends by itself."""
    priority: int = 0
    """Of its trainers: kube-scheduler tries pods of a higher one first, and preempts none for them."""
    namespace: str = NAMESPACE


Scheduler: TypeAlias = Literal["spread", "pack", "random"]


@dataclass(frozen=True)
class Circumstances:
    """How quick everything else is."""

    start_s: float = 3.0
    """From a node to Running."""
    stop_s: float = 10.0
    """From the delete until the capacity is free."""
    longest_backoff_s: float = 0.0
    """Of the scheduler for a pod that fits nowhere; 0: it is tried whenever something is freed."""
    seed: int | None = None
    """Starts and stops take between half and one and a half of these times; None: always the same."""
    scheduler: Scheduler = "spread"
    """Which node a pod gets: the emptiest, the fullest, or any, then without regard to the node that it prefers."""


@dataclass(eq=False)
class SimNode:
    """One node and what is free there."""

    name: str
    cpu_millis: int
    memory_mib: int
    free_cpu: int = 0
    free_memory: int = 0

    def __post_init__(self) -> None:
        self.free_cpu, self.free_memory = self.cpu_millis, self.memory_mib

    def fits(self, ask: Ask) -> bool:
        """Whether the pod fits now."""
        return self.free_cpu >= ask.cpu_millis and self.free_memory >= ask.memory_mib

    def free_share(self, ask: Ask) -> float:
        """How empty it would be with it."""
        cpu = (self.free_cpu - ask.cpu_millis) / self.cpu_millis
        return cpu + (self.free_memory - ask.memory_mib) / self.memory_mib

    def take(self, ask: Ask, sign: int = 1) -> None:
        """Charge the capacity; with -1 release it."""
        self.free_cpu -= ask.cpu_millis * sign
        self.free_memory -= ask.memory_mib * sign


@dataclass(eq=False)
class Pod:
    """One pod; `job` is None for an external pod."""

    number: int
    job: "Job | None"
    role: str
    index: int
    ask: Ask
    preferred: str = ""
    """The node that it prefers, by name."""
    node: SimNode | None = None
    is_running: bool = False
    started_s: float = 0.0
    """When it began to run."""
    is_terminating: bool = False
    is_gone: bool = False
    tries: int = 0

    @property
    def priority(self) -> int:
        """Of its job; an external pod has the highest."""
        return self.job.of.priority if self.job is not None else SERVICE_PRIORITY


@dataclass(eq=False)
class Job:
    """One job that was submitted."""

    of: Submission
    wanted: int
    pods: list[Pod] = field(default_factory=list)
    resizes: int = 0
    first_running_s: float | None = None
    """When its first trainer ran."""
    complete_s: float | None = None
    """When its minimum ran for the first time."""
    ended_s: float | None = None
    work_done_s: float = 0.0
    rate: int = 0
    counted_s: float = 0.0
    plans_made: int = 0
    """Of ends: an older one is void."""

    def live(self, role: str) -> list[Pod]:
        """Its pods that are not terminating."""
        return [pod for pod in self.pods if pod.role == role and not pod.is_terminating]


class Policy(Protocol):
    """Who decides sizes."""

    def begin(self, world: "World") -> None:
        """The world is about to begin."""

    def submitted(self, job: Job) -> None:
        """A job is there, with its first pods."""

    def changed(self) -> None:
        """Something about pods or jobs is different."""


class World:
    """Everything there is, and what comes next."""

    def __init__(self, nodes: Iterable[SimNode], policy: Policy, circumstances: Circumstances) -> None:
        self.now_s = 0.0
        self.changed_s = 0.0
        """When a job came or ended, or a pod was gone, for the last time."""
        self.nodes = list(nodes)
        self.pods: dict[int, Pod] = {}
        self.jobs: list[Job] = []
        self.cpu_total = sum(node.cpu_millis for node in self.nodes)
        self.running_cpu = 0
        self.used_cpu_s = 0.0
        """CPU-thousandths times seconds of running pods, until now."""
        self._policy = policy
        self._circumstances = circumstances
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._waiting: dict[int, Pod] = {}
        self._is_retry_planned = False
        self._random = None if circumstances.seed is None else Random(circumstances.seed)
        self._placing = Random(circumstances.seed or 0)
        policy.begin(self)

    # --- time ----------------------------------------------------------------------------------------------------------

    def at(self, moment_s: float, what: Callable[[], None]) -> None:
        """Something happens then; what was planned first comes first."""
        heapq.heappush(self._events, (moment_s, next(self._numbers), what))

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        """The same, from now on."""
        self.at(self.now_s + delay_s, what)

    def run(self, until_s: float) -> None:
        """Everything until then."""
        while self._events and self._events[0][0] <= until_s:
            moment_s, _, what = heapq.heappop(self._events)
            self._pass_to(moment_s)
            what()
        self._pass_to(until_s)

    def _pass_to(self, moment_s: float) -> None:
        self.used_cpu_s += self.running_cpu * (moment_s - self.now_s)
        self.now_s = moment_s

    @property
    def utilisation(self) -> float:
        """CPU that running pods request, in percent of all nodes', at this moment."""
        return 100.0 * self.running_cpu / self.cpu_total

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> None:
        """At its time: its pods, and then the policy is called."""
        self.at(submission.at_s, lambda: self._submitted(submission))

    def _submitted(self, submission: Submission) -> None:
        job = Job(submission, submission.initial, counted_s=self.now_s)
        self.changed_s = self.now_s
        self.jobs.append(job)
        if submission.master is not None:
            self._create(job, MASTER, 0, submission.master)
        for index in range(submission.pservers):
            self._create(job, PSERVER, index, submission.pserver)
        self._follow(job)
        self._policy.submitted(job)

    def resize(self, job: Job, wanted: int, victims: Collection[int] = (), nodes: Sequence[str] = ()) -> None:
        """So many trainers from now on; victims leave first, then those not running, then the highest index.

        New trainers prefer these nodes, one each.
        """
        if job.ended_s is not None or wanted == job.wanted:
            return
        job.wanted = wanted
        job.resizes += 1
        self._follow(job, victims, nodes)

    def end(self, job: Job) -> None:
        """It is over, and all its pods leave."""
        if job.ended_s is None:
            job.ended_s = self.changed_s = self.now_s
            for pod in list(job.pods):
                self.remove(pod)
            self._policy.changed()

    def _follow(self, job: Job, victims: Collection[int] = (), nodes: Sequence[str] = ()) -> None:
        trainers = job.live(TRAINER)
        taken = {pod.index for pod in job.pods if pod.role == TRAINER}
        free = (index for index in itertools.count() if index not in taken)
        for number in range(job.wanted - len(trainers)):
            preferred = nodes[number] if number < len(nodes) else ""
            self._create(job, TRAINER, next(free), job.of.trainer, preferred)
        surplus = len(trainers) - job.wanted
        for pod in sorted(trainers, key=lambda each: (each.index not in victims, *_first_to_go(each)))[
            : max(0, surplus)
        ]:
            self.remove(pod)

    # --- pods ----------------------------------------------------------------------------------------------------------

    def serve(self, ask: Ask) -> Pod:
        """An external pod."""
        return self._create(None, SERVICE, 0, ask)

    def _create(self, job: Job | None, role: str, index: int, ask: Ask, preferred: str = "") -> Pod:
        pod = Pod(next(self._numbers), job, role, index, ask, preferred)
        self.pods[pod.number] = pod
        if job is not None:
            job.pods.append(pod)
        self._place(pod)
        self._policy.changed()
        return pod

    def _place(self, pod: Pod) -> None:
        if pod.is_gone or pod.is_terminating or pod.node is not None:
            return
        fitting = [node for node in self.nodes if node.fits(pod.ask)]
        if not fitting:
            self._put_back(pod)
            return
        node = self._chosen(pod, fitting)
        node.take(pod.ask)
        pod.node = node
        self.after(self._about(self._circumstances.start_s), lambda: self._started(pod))

    def _chosen(self, pod: Pod, fitting: list[SimNode]) -> SimNode:
        scheduler = self._circumstances.scheduler
        if scheduler == "random":
            return self._placing.choice(fitting)
        sign = 1 if scheduler == "spread" else -1
        return max(fitting, key=lambda each: (each.name == pod.preferred, sign * each.free_share(pod.ask)))

    def _about(self, delay_s: float) -> float:
        return delay_s if self._random is None else delay_s * self._random.uniform(0.5, 1.5)

    def _put_back(self, pod: Pod) -> None:
        if self._circumstances.longest_backoff_s <= 0:
            self._waiting[pod.number] = pod
            return
        delay_s = min(self._circumstances.longest_backoff_s, 2.0**pod.tries)
        pod.tries += 1
        self.after(delay_s, lambda: self._place(pod))

    def _retry(self) -> None:
        """All pending pods, by priority, then age; what has failed for one fails for its equals."""
        self._is_retry_planned = False
        waiting, self._waiting = self._waiting, {}
        rejected: set[Ask] = set()
        for pod in sorted(waiting.values(), key=lambda each: -each.priority):
            if pod.ask not in rejected:
                self._place(pod)
            if pod.node is None and not pod.is_gone:
                rejected.add(pod.ask)
                self._waiting[pod.number] = pod

    def _started(self, pod: Pod) -> None:
        if pod.is_gone or pod.is_terminating:
            return
        pod.is_running, pod.started_s = True, self.now_s
        self.running_cpu += pod.ask.cpu_millis
        if pod.job is not None:
            self._progress(pod.job)
        self._policy.changed()

    def remove(self, pod: Pod) -> None:
        """Delete it: at once if it has no node, otherwise after its grace period, running until then."""
        if pod.is_gone or pod.is_terminating:
            return
        pod.is_terminating = True
        if pod.node is None:
            self._gone(pod)
        else:
            self.after(self._about(self._circumstances.stop_s), lambda: self._gone(pod))
        if pod.job is not None:
            self._progress(pod.job)
        self._policy.changed()

    def _gone(self, pod: Pod) -> None:
        pod.is_gone, self.changed_s = True, self.now_s
        del self.pods[pod.number]
        self._waiting.pop(pod.number, None)
        if pod.node is not None:
            pod.node.take(pod.ask, -1)
            self.running_cpu -= pod.ask.cpu_millis if pod.is_running else 0
            if self._waiting and not self._is_retry_planned:
                self._is_retry_planned = True
                self.after(0.0, self._retry)
        if pod.job is not None:
            pod.job.pods.remove(pod)
        self._policy.changed()

    # --- progress ------------------------------------------------------------------------------------------------------

    def _progress(self, job: Job) -> None:
        """Count the progress, and return when the job will end."""
        job.work_done_s += job.rate * (self.now_s - job.counted_s)
        job.counted_s = self.now_s
        running = sum(1 for pod in job.live(TRAINER) if pod.is_running)
        is_served = all(pod.is_running for role in (MASTER, PSERVER) for pod in job.live(role))
        job.rate = running if is_served else 0
        if running and job.first_running_s is None:
            job.first_running_s = self.now_s
        if running >= job.of.low and is_served and job.complete_s is None:
            job.complete_s = self.now_s
        if job.of.work_s is not None and job.ended_s is None:
            self._plan_end(job, job.of.work_s)

    def _plan_end(self, job: Job, work_s: float) -> None:
        job.plans_made += 1
        plan = job.plans_made
        if job.rate:
            left_s = max(0.0, work_s - job.work_done_s) / job.rate
            self.after(left_s, lambda: self.end(job) if job.plans_made == plan else None)


def _first_to_go(pod: Pod) -> tuple[bool, bool, int]:
    return pod.node is not None, pod.is_running, -pod.index
