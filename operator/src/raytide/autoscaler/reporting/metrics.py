"""Prometheus metrics of the sidecar.

All metrics of the autoscaler's page: those of Ray's own V2 under the same names, so that dashboards keep working
(AS §5.2), and Raytide's about demand, decisions and tick duration. Takes a tick and updates values; decisions do not
depend on them. Updated after each tick, served by main.py; separate from the operator's metrics, which are in another
process.
"""

from collections import Counter as Tally
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from raytide.autoscaler.model import UNIT, Demand, GcsState, Instance, NodeType, Status
from raytide.autoscaler.reporting.tick import Tick
from raytide.autoscaler.state.snapshot import ReconcileResult

PENDING: Final = frozenset({Status.QUEUED, Status.REQUESTED, Status.ALLOCATED, Status.RAY_INSTALLING})
ACTIVE: Final = frozenset({Status.RAY_RUNNING, Status.RAY_STOP_REQUESTED, Status.RAY_STOPPING})
ENDING: Final = frozenset({Status.TERMINATING})
UPDATE_BUCKETS: Final = (0.01, 0.1, 1, 10, 100, 1000)
TICK_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SESSION: Final = "SessionName"


class SidecarMetrics:
    """One registry, labelled with one session."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.session = ""
        ProcessCollector(registry=self.registry)
        self._rays()
        self._ours()

    def _rays(self) -> None:
        """Register the metrics that have names, labels and resource names as in Ray; the resource label is in lower case."""
        self._pending_nodes = self._gauge("autoscaler_pending_nodes", "Pending nodes.", "NodeType")
        self._active_nodes = self._gauge(
            "autoscaler_active_nodes", "Nodes that run Ray, including the head.", "NodeType"
        )
        self._ending_nodes = self._gauge(
            "autoscaler_recently_failed_nodes", "Nodes that are terminating; the name is Ray's.", "NodeType"
        )
        self._cluster_resources = self._gauge(
            "autoscaler_cluster_resources", "Resources of active nodes, as configured.", "resource"
        )
        self._pending_resources = self._gauge(
            "autoscaler_pending_resources", "Resources of pending nodes, as configured.", "resource"
        )
        self._started = self._counter("autoscaler_started_nodes", "Requested nodes.")
        self._stopped = self._counter("autoscaler_stopped_nodes", "Nodes that accepted a drain.")
        self._exceptions = self._counter(
            "autoscaler_update_loop_exceptions", "Ticks that failed with an unexpected error."
        )
        self._drain_exceptions = self._counter("autoscaler_drain_node_exceptions", "Drain requests without an answer.")
        self._update_time = Histogram(
            "autoscaler_update_time_seconds",
            "Duration of one tick, in Ray's buckets.",
            [SESSION],
            buckets=UPDATE_BUCKETS,
            registry=self.registry,
        )

    def _ours(self) -> None:
        self._demand = self._gauge("raytide_autoscaler_demand", "Pending demand of Ray, by kind of request.", "kind")
        self._unmet = self._gauge("raytide_autoscaler_unmet", "Demand without a node, by cause.", "why")
        self._wanted = self._gauge("raytide_autoscaler_wanted_replicas", "Desired replicas, by group.", "group")
        self._patches = self._counter("raytide_autoscaler_patches", "First patches of a tick, by result.", "result")
        self._drains = self._counter("raytide_autoscaler_drains", "Drain requests, by answer.", "answer")
        self._skipped = self._counter("raytide_autoscaler_skipped_ticks", "Ticks without a decision, by cause.", "why")
        self._tick_time = Histogram(
            "raytide_autoscaler_tick_seconds",
            "Duration of one tick, including reads and writes.",
            [SESSION],
            buckets=TICK_BUCKETS,
            registry=self.registry,
        )

    def note(self, tick: Tick) -> None:
        """Count one tick."""
        self._update_time.labels(self.session).observe(tick.lasted_s)
        self._tick_time.labels(self.session).observe(tick.lasted_s)
        if tick.plan is None:
            self._skipped.labels(self.session, tick.skipped).inc()
            if tick.skipped == "bug":
                self._exceptions.labels(self.session).inc()
            return
        if tick.written is not None:
            self._patches.labels(self.session, tick.written.value).inc()
        self._note_plan(tick.plan)
        self._note_drains(tick)
        if tick.gcs is not None:
            self._note_demand(tick.gcs)

    def _note_plan(self, plan: ReconcileResult) -> None:
        self._note_nodes(plan.instances, plan.types)
        self._fill(self._wanted, {group: decision.replicas for group, decision in plan.decisions.items()})
        reply = plan.reply
        if reply is None:
            return
        self._started.labels(self.session).inc(sum(reply.launches.values()) if plan.patch else 0)
        unplaced, impossible = _count(reply.unplaced), _count(reply.impossible)
        self._fill(
            self._unmet,
            {
                "no_room": unplaced - impossible,
                "impossible": impossible,
                "gangs_no_room": len(reply.unplaced_gangs) - len(reply.impossible_gangs),
                "gangs_impossible": len(reply.impossible_gangs),
            },
        )

    def _note_nodes(self, instances: Iterable[Instance], types: Iterable[NodeType]) -> None:
        """Count as Ray does: every known type has a value, resources are the type's times the nodes."""
        resources = {node_type.name: node_type.resources for node_type in types}
        by_status = Tally((instance.node_type, instance.status) for instance in instances if instance.node_type)
        names = {*resources, *(name for name, _ in by_status)}
        for gauge, statuses in (
            (self._pending_nodes, PENDING),
            (self._active_nodes, ACTIVE),
            (self._ending_nodes, ENDING),
        ):
            self._fill(gauge, {name: sum(by_status[name, status] for status in statuses) for name in names})
        for gauge, statuses in ((self._pending_resources, PENDING), (self._cluster_resources, ACTIVE)):
            sums: Tally[str] = Tally()
            for (name, status), count in by_status.items():
                for resource, amount in resources.get(name, ()) if status in statuses else ():
                    sums[resource] += amount * count
            self._fill(gauge, {resource: amount / UNIT for resource, amount in sums.items()})

    def _note_drains(self, tick: Tick) -> None:
        for answer in tick.answers.values():
            word = "none" if answer is None else "accepted" if answer.is_accepted else "refused"
            self._drains.labels(self.session, word).inc()
            if answer is None:
                self._drain_exceptions.labels(self.session).inc()
            elif answer.is_accepted:
                self._stopped.labels(self.session).inc()

    def _note_demand(self, state: GcsState) -> None:
        self._fill(
            self._demand,
            {"tasks": _count(state.tasks), "gangs": len(state.gangs), "constraint": _count(state.constraint or ())},
        )

    def _gauge(self, name: str, text: str, label: str) -> Gauge:
        return Gauge(name, text, [SESSION, label], registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, [SESSION, *labels], registry=self.registry)

    def _fill(self, gauge: Gauge, values: dict[str, float] | dict[str, int]) -> None:
        """Set these values and remove all others, so that removed labels do not keep their last value."""
        gauge.clear()
        for label, value in values.items():
            gauge.labels(self.session, label).set(value)


def _count(demands: Iterable[Demand]) -> int:
    return sum(demand.count for demand in demands)
