"""A small simulated cluster: an operator that follows the record, a kubelet, and a Ray with demand and drains.

Everything is plain state moved by `step()` in whole seconds; the sidecar under test sees only what the real one would
see, through the same values, and its patches are applied by the sandbox's JSON patch. Every write and every deletion is
judged on the spot (RM:I1, I4, I21, I22, I24; contract), so that a test only has to make things happen.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from raytide.api import constants
from raytide.api.autoscaler_decision import parse_record
from raytide.api.pod import ContainerView, PodCondition, PodView
from raytide.autoscaler.model import (
    HEAD_TYPE,
    Demand,
    Drained,
    DrainReason,
    Gang,
    GcsState,
    NodeStatus,
    RayNode,
    Report,
    Request,
    amounts_of,
)
from raytide.autoscaler.sidecar.reconcile import plan_names, reconcile
from raytide.autoscaler.state.node_autoscaler_events import UNKNOWN, NodeAutoscaler
from raytide.autoscaler.state.snapshot import Operation, ReconcileResult, ReconcilerSettings, ReconcilerState, Snapshot
from raytide_sandbox.apiserver.api_status import ApiStatusError
from raytide_sandbox.apiserver.patching import json_patch
from support.builders import group, raycluster

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TERMINATION_S = 2
NOTICE_S = 60
TICK_S = 5


@dataclass
class Task:
    """One CPU for as long as it stands; `node` is where it runs."""

    node: str = ""


@dataclass
class Pod:
    name: str
    group: str
    created_s: int
    replica: str = ""
    starts_at: int | None = None
    """When its Ray node registers; None: never (unschedulable)."""
    dying_since: int | None = None
    has_ended: bool = False


@dataclass
class Node:
    node_id: str
    pod: str
    group: str
    cpus: int
    status: NodeStatus = NodeStatus.RUNNING
    idle_since: int = 0
    draining_since: int | None = None
    taken_at: int | None = None


@dataclass
class World:
    """`World(group("cpu", low=0, high=10))`; all knobs may be turned at any time."""

    groups: list[dict[str, Any]] = field(default_factory=lambda: [group("cpu", replicas=0)])
    spec: dict[str, Any] = field(default_factory=dict)
    is_recorded: bool = True
    pending_idle_timeout_s: float | None = None
    has_gpu_conservation: bool = True
    start_s: int = 10
    now_s: int = 0
    blocked: set[str] = field(default_factory=set)
    """Groups whose new pods no node can take."""
    machine_s: dict[str, int] = field(default_factory=dict)
    """By group: so long after its creation a node autoscaler has added a node for a pod."""
    node_autoscaler: NodeAutoscaler = UNKNOWN
    """What is known of it, but for its answers."""
    first_event_s: int = 10
    """The delay of its event about a pod."""
    crashes: set[str] = field(default_factory=set)
    """Groups whose pods end instead of becoming Ray nodes."""
    rejects: set[str] = field(default_factory=set)
    """Ray nodes that reject every drain."""
    is_gcs_away: bool = False
    is_head_up: bool = True
    has_operator: bool = True
    fate_of_patches: Callable[[], str] = lambda: "ok"
    """`ok`, `lost` before or `unheard` after it was written."""
    dies_at: Callable[[], str] = lambda: ""
    """`patch`, `drain`: right after which step the sidecar is killed."""

    def __post_init__(self) -> None:
        self.cluster = raycluster(
            *self.groups,
            **{"enableInTreeAutoscaling": True, "autoscalerOptions": {"idleTimeoutSeconds": 20}, **self.spec},
        )
        if not self.groups:
            self.cluster["spec"]["workerGroupSpecs"] = []
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.tasks: list[Task] = []
        self.gangs: list[tuple[str, int]] = []
        """(id, bundles): STRICT_SPREAD over so many nodes."""
        self.placed: dict[str, list[str]] = {}
        self.reported_tasks = 0
        self.state = ReconcilerState()
        self.decisions_before_restart = 0
        """Decisions that earlier processes of the sidecar wrote."""
        self.writes: list[tuple[int, str, tuple[Operation, ...]]] = []
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.reports: list[Report] = []
        self.plans: list[ReconcileResult] = []
        self.lines: list[str] = []
        self.events: list[str] = []
        self.drain_calls: list[tuple[int, str, DrainReason]] = []
        self.next_tick_s = 0
        self.constraint: tuple[Demand, ...] | None = None
        self.extra_tasks: tuple[Demand, ...] = ()

    # --- what tests turn -------------------------------------------------------------------------------------------

    def demand(self, count: int) -> None:
        """So many one-CPU tasks stand from now on; running ones are ended last."""
        self.tasks.sort(key=lambda task: not task.node)
        while len(self.tasks) > count:
            self.tasks.pop()
        self.tasks += [Task() for _ in range(count - len(self.tasks))]

    def restart(self) -> None:
        """A new process: all memory is gone."""
        self.state = ReconcilerState()
        self.decisions_before_restart = len(self.decision_times())
        self.next_tick_s = self.now_s

    def spec_of(self, name: str) -> dict[str, Any]:
        return next(g for g in self.cluster["spec"]["workerGroupSpecs"] if g["groupName"] == name)

    def edit(self, name: str, **values: Any) -> None:
        """An edit by a user."""
        self.spec_of(name).update(values)
        self.cluster["metadata"]["generation"] += 1

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.step()

    def run_until(self, is_reached: Callable[[], bool], within_s: int) -> int:
        began = self.now_s
        while not is_reached():
            assert self.now_s - began < within_s, self.portrait()
            self.step()
        return self.now_s - began

    # --- what tests look at ------------------------------------------------------------------------------------------

    def live(self, name: str = "cpu") -> list[Pod]:
        return [p for p in self.pods.values() if p.group == name and p.dying_since is None and not p.has_ended]

    def replicas(self, name: str = "cpu") -> int:
        return int(self.spec_of(name).get("replicas") or 0)

    def named(self, name: str = "cpu") -> list[str]:
        return list(self.spec_of(name).get("scaleStrategy", {}).get("workersToDelete", []))

    def record(self) -> Any:
        return parse_record(
            self.cluster["metadata"].get("annotations", {}).get(constants.AUTOSCALER_DECISION_ANNOTATION)
        )

    def waiting(self) -> int:
        return sum(not task.node for task in self.tasks)

    def reasons(self) -> set[str]:
        record = self.record()
        if record is None:
            return set()
        return {why.reason for d in record.groups.values() for why in d.why} | {why.reason for why in record.why}

    def lines_and_reasons(self) -> str:
        """All log lines."""
        return " | ".join([*self.lines, *sorted(self.reasons())])

    def idle_for(self) -> int:
        """For how long the busiest node has had nothing to do."""
        return min(self.now_s - node.idle_since for node in self.nodes.values())

    def portrait(self) -> str:
        groups = {g["groupName"]: (g.get("replicas"), len(self.live(g["groupName"]))) for g in self.groups_now()}
        return f"t={self.now_s} (replicas, pods)={groups} waiting={self.waiting()} last={self.lines[-5:]}"

    def kill(self, node_id: str) -> None:
        """A raylet crashes."""
        self._kill_node(self.nodes[node_id])

    def preempt(self, node_id: str) -> None:
        """Another client drains a node that will be removed: a spot notice."""
        node = self.nodes[node_id]
        node.status, node.draining_since, node.taken_at = NodeStatus.DRAINING, self.now_s, self.now_s + NOTICE_S

    def evict(self, pod: str) -> None:
        """Another client deletes a pod."""
        self._delete(self.pods[pod])

    def idle_above_minimum(self) -> list[str]:
        """Idle replicas above the minimum."""
        found = []
        for spec in self.groups_now():
            nodes_by_replica: dict[str, list[Node]] = {}
            for node in self.nodes.values():
                if node.group == spec["groupName"] and node.status is NodeStatus.RUNNING:
                    nodes_by_replica.setdefault(self.pods[node.pod].replica or node.pod, []).append(node)
            idle = [name for name, nodes in nodes_by_replica.items() if not any(map(self._busy, nodes))]
            found += idle[: max(0, len(nodes_by_replica) - spec["minReplicas"])]
        return found

    def groups_now(self) -> list[dict[str, Any]]:
        return list(self.cluster["spec"]["workerGroupSpecs"])

    # --- one second --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.now_s += 1
        self._kubelet()
        if self.has_operator:
            self._operator()
        self._ray()
        if self.now_s >= self.next_tick_s:
            self.next_tick_s = self.now_s + TICK_S
            self._sidecar()

    def _kubelet(self) -> None:
        for pod in list(self.pods.values()):
            node = self._node_in(pod.name)
            if pod.dying_since is not None and self.now_s - pod.dying_since >= TERMINATION_S:
                del self.pods[pod.name]
                if node:
                    self._kill_node(node)
            elif self._is_on_its_way(pod):
                pod.starts_at = self.now_s + self.start_s
            elif pod.starts_at is not None and self.now_s >= pod.starts_at and node is None and not pod.has_ended:
                if pod.group in self.crashes:
                    pod.has_ended = True
                    continue
                node_id = f"node-{pod.name}"
                self.nodes[node_id] = Node(node_id, pod.name, pod.group, self._cpus(pod.group), idle_since=self.now_s)
                self.next_tick_s = min(self.next_tick_s, self.now_s)
            if node and node.status is NodeStatus.DEAD:
                pod.has_ended = True

    def _is_on_its_way(self, pod: Pod) -> bool:
        """A node has taken it just now."""
        waits = pod.starts_at is None and pod.group not in self.blocked and not pod.has_ended
        is_there = self._node_in(pod.name) is not None
        return waits and not is_there and self.now_s - pod.created_s >= self.machine_s.get(pod.group, 0)

    def _answers(self) -> NodeAutoscaler:
        """A node comes for every pod of a group that has machines, and for no other."""
        old = [pod for pod in self.pods.values() if self.now_s - pod.created_s >= self.first_event_s]
        answers = {pod.name: pod.group not in self.blocked for pod in old} if self.machine_s else {}
        has_sent_events = self.node_autoscaler.has_sent_events or bool(answers)
        self.node_autoscaler = replace(self.node_autoscaler, has_sent_events=has_sent_events)
        return replace(self.node_autoscaler, scale_up_by_pod=answers)

    def _cpus(self, name: str) -> int:
        found = [g for g in self.groups_now() if g["groupName"] == name]
        return int(found[0]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"]) if found else 1

    def _node_in(self, pod: str) -> Node | None:
        return self.nodes.get(f"node-{pod}")

    def _kill_node(self, node: Node) -> None:
        node.status = NodeStatus.DEAD
        for task in self.tasks:
            if task.node == node.node_id:
                task.node = ""
        self.placed = {gang: at for gang, at in self.placed.items() if node.node_id not in at}

    # --- the operator, as the contract has it ------------------------------------------------------------------------

    def _operator(self) -> None:
        paused = self.cluster["metadata"].get("annotations", {}).get(constants.AUTOSCALER_ANNOTATION) == "paused"
        record = None if paused or not self.is_recorded else self.record()
        for spec in self.groups_now():
            self._operate_group(spec, record)
        for pod in self.pods.values():
            if pod.dying_since is None and not any(g["groupName"] == pod.group for g in self.groups_now()):
                self._delete(pod)

    def _operate_group(self, spec: Mapping[str, Any], record: Any) -> None:
        name, hosts = spec["groupName"], spec.get("numOfHosts", 1)
        decision = record.groups.get(name) if record else None
        wanted = spec.get("replicas", spec["minReplicas"])
        ordered = set(spec.get("scaleStrategy", {}).get("workersToDelete", []))
        if decision is not None:
            wanted = max(decision.replicas, decision.replicas_to_adopt(spec.get("replicas")) or 0)
            ordered |= set(decision.delete)
        wanted = max(spec["minReplicas"], min(wanted, spec["maxReplicas"])) * hosts
        if spec.get("suspend"):
            wanted, ordered = 0, {pod.name for pod in self.pods.values() if pod.group == name}
        mine = [pod for pod in self.pods.values() if pod.group == name]
        members = Counter(pod.replica for pod in mine if pod.replica)
        broken = {replica for replica, count in members.items() if count < hosts}  # one was deleted between two passes
        broken |= {
            pod.replica for pod in mine if pod.replica and (pod.has_ended or pod.name in ordered or pod.dying_since)
        }
        for pod in mine:
            if pod.dying_since is None and (pod.has_ended or pod.name in ordered or pod.replica in broken):
                self._delete(pod)
        missing = wanted - sum(pod.group == name for pod in self.pods.values())
        for _ in range(max(0, missing // hosts)):
            replica = f"{name}-replica-{len(self.created)}" if hosts > 1 else ""
            for _ in range(hosts):
                self._create(name, replica)
        live = len(self.live(name))
        assert live <= spec["maxReplicas"] * hosts or self.is_over_max_expected, f"I1: {live} pods of {name}"

    is_over_max_expected: bool = False

    def _create(self, name: str, replica: str) -> None:
        pod = Pod(f"demo-{name}-worker-{len(self.created):04d}", name, self.now_s, replica)
        if name not in self.blocked and name not in self.machine_s:
            pod.starts_at = self.now_s + self.start_s
        self.pods[pod.name] = pod
        self.created.append(pod.name)
        self.next_tick_s = min(self.next_tick_s, self.now_s + 1)

    def _delete(self, pod: Pod) -> None:
        pod.dying_since = self.now_s
        self.deleted.append(pod.name)
        self.next_tick_s = min(self.next_tick_s, self.now_s + 1)

    # --- Ray ---------------------------------------------------------------------------------------------------------

    def _ray(self) -> None:
        self.reported_tasks = (
            self.waiting()
        )  # what raylets said at the last poll; what is placed below shows a second later
        alive = [n for n in self.nodes.values() if n.status is NodeStatus.RUNNING]
        for gang, size in self.gangs:
            free = [n for n in alive if self._free(n) >= 1]
            if gang not in self.placed and len(free) >= size:
                self.placed[gang] = [n.node_id for n in free[:size]]
        for task in self.tasks:
            if not task.node:
                capacity = next((n for n in alive if self._free(n) >= 1), None)
                task.node = capacity.node_id if capacity else ""
        for node in self.nodes.values():
            if self._busy(node):
                node.idle_since = self.now_s
            elif node.status is NodeStatus.DRAINING:
                self._kill_node(node)
            if node.taken_at is not None and self.now_s >= node.taken_at:
                self._kill_node(node)

    def _used(self, node: Node) -> int:
        bundles = sum(at.count(node.node_id) for at in self.placed.values())
        return sum(task.node == node.node_id for task in self.tasks) + bundles

    def _free(self, node: Node) -> int:
        return node.cpus - self._used(node)

    def _busy(self, node: Node) -> bool:
        return self._used(node) > 0

    def drain(self, node_id: str, reason: DrainReason) -> Drained | None:
        """What the GCS answers, and what it does (AS:G-12)."""
        self.drain_calls.append((self.now_s, node_id, reason))
        if self.is_gcs_away:
            return None
        node = self.nodes.get(node_id)
        if node is None or node.status is NodeStatus.DEAD:
            return Drained(True)
        if reason is DrainReason.PREEMPTION:
            node.status, node.draining_since = NodeStatus.DRAINING, self.now_s
            return Drained(True)
        if self._busy(node) or node_id in self.rejects:
            return Drained(False, "the node is not idle")
        self._kill_node(node)
        return Drained(True)

    # --- what the sidecar sees ---------------------------------------------------------------------------------------

    def moment(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now_s)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            cluster=self.cluster,
            pods=(self._head(), *(self._view(pod) for pod in self.pods.values())),
            gcs=None if self.is_gcs_away else self._state(),
            now=self.moment(),
            monotonic_s=1000.0 + self.now_s,
            node_autoscaler=self._answers(),
            settings=ReconcilerSettings(
                is_recorded=self.is_recorded,
                pending_idle_timeout_s=self.pending_idle_timeout_s,
                has_gpu_conservation=self.has_gpu_conservation,
            ),
        )

    def _head(self) -> PodView:
        return PodView(
            namespace="default", name="demo-head", uid="uid-head", cluster="demo", node_type="head", phase="Running",
            group=HEAD_TYPE, ready=PodCondition("True"), creation_timestamp="2026-01-01T00:00:00Z",
        )  # fmt: skip

    def _view(self, pod: Pod) -> PodView:
        is_stuck = pod.starts_at is None
        is_running = self._node_in(pod.name) is not None
        scheduled = (
            PodCondition("False", "Unschedulable", "0/3 nodes are available") if is_stuck else PodCondition("True")
        )
        state = "terminated" if pod.has_ended else "running" if is_running else ""
        return PodView(
            namespace="default",
            name=pod.name,
            uid=f"uid-{pod.name}",
            cluster="demo",
            group=pod.group,
            node_type="worker",
            replica_name=pod.replica,
            phase="Running" if is_running else "Pending",
            ready=PodCondition("True" if is_running and not pod.has_ended else "False"),
            scheduled=scheduled,
            creation_timestamp=(EPOCH + timedelta(seconds=pod.created_s)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            deletion_timestamp="2026-01-01T00:00:00Z" if pod.dying_since is not None else "",
            node_name="" if is_stuck else "k8s-node",
            restart_policy="Never",
            ray_container="ray-worker",
            containers=(ContainerView("ray-worker", state),),
        )

    def _state(self) -> GcsState:
        head = RayNode(
            "head", NodeStatus.IDLE, "demo-head", HEAD_TYPE,
            total=amounts_of({"node:__internal_head__": 1}), available=amounts_of({"node:__internal_head__": 1}), idle_ms=1,
        )  # fmt: skip
        one = Request(amounts_of({"CPU": 1}), selectors=((),))
        return GcsState(
            nodes=((head,) if self.is_head_up else ()) + tuple(self._ray_node(node) for node in self.nodes.values()),
            tasks=((Demand(one, self.reported_tasks),) if self.reported_tasks else ()) + self.extra_tasks,
            gangs=tuple(
                Gang(
                    f"{gang}:STRICT_SPREAD|PENDING",
                    (Request(amounts_of({"CPU": 1}), anti_affinity=(f"_PG_{gang}", "")),) * size,
                )
                for gang, size in self.gangs
                if gang not in self.placed
            ),
            constraint=self.constraint,
            session="session",
        )

    def _ray_node(self, node: Node) -> RayNode:
        if node.status is NodeStatus.DEAD:
            return RayNode(node.node_id, NodeStatus.DEAD, node.pod, node.group)
        has_idle_time = node.status is not NodeStatus.DRAINING and not self._busy(
            node
        )  # the GCS reports it for no other node
        idle_ms = (self.now_s - node.idle_since) * 1000 if has_idle_time else 0
        status = NodeStatus.IDLE if node.status is NodeStatus.RUNNING and idle_ms else node.status
        free = self._free(node)
        return RayNode(
            node.node_id, status, node.pod, node.group,
            total=amounts_of({"CPU": node.cpus, "memory": 2 * 1024**3}),
            available=amounts_of({**({"CPU": free} if free else {}), "memory": 2 * 1024**3}),
            idle_ms=idle_ms,
        )  # fmt: skip

    # --- the sidecar ---------------------------------------------------------------------------------------------------

    def _sidecar(self) -> None:
        snapshot = self.snapshot()
        plan = reconcile(snapshot, self.state)
        if len(self.plans) % 10 == 0:
            assert plan == reconcile(snapshot, self.state), "I23"
        self.plans.append(plan)
        self.state = plan.state
        self.lines += [line.message for line in plan.log]
        self.events += [event.message for event in plan.events]
        if plan.report:
            self.reports.append(plan.report)
        if plan.requeue_after_s is not None:
            self.next_tick_s = min(self.next_tick_s, self.now_s + max(1, round(plan.requeue_after_s + 0.5)))
        if plan.patch and not self._submit(plan.patch, "decisions"):
            return
        kill = self.dies_at()
        if kill == "patch":
            self.restart()
            return
        answers = {drain.node_id: self.drain(drain.node_id, drain.reason) for drain in plan.drains}
        if kill == "drain" and plan.drains:
            self.restart()
            return
        if plan.drains:
            naming = plan_names(replace(snapshot, cluster=self.cluster), plan, answers)
            self.state = naming.state
            self.lines += [line.message for line in naming.log]
            if naming.patch:
                self._submit(naming.patch, "names")

    def _submit(self, patch: tuple[Operation, ...], kind: str) -> bool:
        fate = self.fate_of_patches()
        if fate == "lost":
            return False
        self._check_patch(patch, kind)
        try:
            written = json_patch(_copy(self.cluster), [dict(op) for op in patch])
        except ApiStatusError:
            return False
        is_spec_change = written["spec"] != self.cluster["spec"]
        self.cluster = written
        self.cluster["metadata"]["generation"] += is_spec_change
        self.writes.append((self.now_s, kind, patch))
        return fate != "unheard"

    def _check_patch(self, patch: tuple[Operation, ...], kind: str) -> None:
        """RM:I21, I22, I24 and the pace, at the write itself."""
        tested = {op["path"]: op["value"] for op in patch if op["op"] == "test"}
        assert tested["/metadata/uid"] == self.cluster["metadata"]["uid"], "I24"
        decisions = self.decision_times()
        if kind == "decisions" and decisions and not self.is_last_decision_unknown():
            assert self.now_s - decisions[-1] >= 2, "contract: at least 2 s apart"
        for op in patch:
            parts = op["path"].split("/")
            if op["op"] == "test" or parts[1] != "spec":
                continue
            spec = self.cluster["spec"]["workerGroupSpecs"][int(parts[3])]
            assert tested[f"/spec/workerGroupSpecs/{parts[3]}/groupName"] == spec["groupName"], "I24"
            if parts[4] == "replicas":
                assert spec["minReplicas"] <= op["value"] <= max(spec["minReplicas"], spec["maxReplicas"]), "I21"
            else:
                named = op["value"]["workersToDelete"] if isinstance(op["value"], dict) else op["value"]
                self._check_names(spec, named)

    def _check_names(self, spec: Mapping[str, Any], named: list[str]) -> None:
        for name in set(named) - set(spec.get("scaleStrategy", {}).get("workersToDelete", [])):
            pod, node = self.pods[name], self._node_in(name)
            assert pod.group == spec["groupName"], "I5"
            is_at_work = node is not None and node.status is not NodeStatus.DEAD and self._busy(node)
            grace_s = ReconcilerSettings().preemption_grace_s
            is_overdue = is_at_work and node.draining_since is not None and self.now_s - node.draining_since >= grace_s
            assert not is_at_work or is_overdue, f"I22: {name} is busy"

    def decision_times(self) -> list[int]:
        return [at for at, kind, _ in self.writes if kind == "decisions"]

    def is_last_decision_unknown(self) -> bool:
        """A process before this one wrote it, and no record tells when."""
        return not self.is_recorded and len(self.decision_times()) == self.decisions_before_restart


def _copy(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _copy(value) for key, value in found.items()}
    return [_copy(value) for value in found] if isinstance(found, list) else found
