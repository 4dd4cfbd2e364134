"""Scheduler of the sandbox.

Takes changes of pods and nodes, binds pods by priority and age to a node that fits, preferred ones (node affinity) before
others, then the least loaded one, and gives the others the condition and event of Kubernetes' scheduler. An unschedulable pod is tried again when capacity is freed or added;
pods with the same needs are tried once per round, so a thousand pending workers cost one pass over the nodes. It never
assigns the same capacity twice and never preempts. One of the sandbox's controllers; node_fit.py decides what fits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any, Final

from raytide.api.quantity import QuantityError
from raytide_sandbox.apiserver.store import ObjectKey, Store, encode
from raytide_sandbox.apiserver.subresources import bind_pod
from raytide_sandbox.controllers.base import Json, Noted, attempt, record_event, set_condition
from raytide_sandbox.controllers.node_fit import (
    NodeCapacity,
    Requests,
    build_capacity,
    pod_requests,
    preference,
    required_terms,
    rule_out,
    unschedulable_message,
)
from raytide_sandbox.controllers.pod_view import PodSeen
from raytide_sandbox.controllers.volumes import CLAIMS
from raytide_sandbox.rfc3339 import format_time, parse_time

SCHEDULER: Final = "default-scheduler"
GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"


@dataclass(slots=True)
class _Waiting:
    """A pending pod."""

    spec: Mapping[str, Any]
    requests: Requests
    shape: bytes
    """Equal for pods that fit on the same nodes."""
    order: tuple[int, int, int]
    """Higher priority first, then older first, of one second in the order of their creation."""
    reported: str = ""
    """The message of the last FailedScheduling."""


class Scheduler:
    """Binds pods to nodes by requested resources."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._nodes: dict[str, NodeCapacity] = {}
        self._placed: dict[ObjectKey, tuple[str, Requests]] = {}
        self._waiting: dict[ObjectKey, _Waiting] = {}
        self._gated: set[ObjectKey] = set()
        self._malformed: dict[ObjectKey, str] = {}
        self._due: set[ObjectKey] = set()
        self._waiting_for_claims: set[ObjectKey] = set()
        """Pods that a changed claim may let start."""
        self._has_more_capacity = False
        self._arrivals = count()
        self._arrived: dict[ObjectKey, int] = {}
        """Places of pending pods among those of the same priority and second; an update does not change them."""

    # --- noting --------------------------------------------------------------------------------------------------------
    def on_change(self, noted: Noted) -> None:
        """Update node capacities and pending pods."""
        if noted.key.resource == "pods":
            self._on_pod_change(noted)
        elif noted.key.resource == "nodes":
            self._on_node_change(noted)
        elif noted.key.resource == CLAIMS:
            self._due |= self._waiting_for_claims

    def _on_node_change(self, noted: Noted) -> None:
        name = noted.key.name
        if noted.is_gone:
            self._nodes.pop(name, None)
            return
        try:
            capacity = build_capacity(noted.obj)
        except QuantityError:
            self._nodes.pop(name, None)  # its capacity cannot be parsed, so no pod fits there
            return
        old = self._nodes.get(name)
        if old is not None:
            capacity.taken = old.taken
            if capacity == old:
                return
        else:
            for node, requests in self._placed.values():
                if node == name:
                    capacity.take(requests)
        self._nodes[name] = capacity
        self._has_more_capacity = True

    def _on_pod_change(self, noted: Noted) -> None:
        key, pod = noted.key, noted.pod
        known = self._forget_waiting(key)
        if noted.is_gone or pod.has_ended or pod.spec.node_name:
            self._arrived.pop(key, None)
            self._waiting_for_claims.discard(key)
        if noted.is_gone or pod.has_ended:
            self._leave(key)
        elif pod.spec.node_name:
            self._settle(key, pod)
        elif not noted.change.entry.is_terminating and (pod.spec.scheduler_name or SCHEDULER) == SCHEDULER:
            self._wait(key, pod, known)

    def _forget_waiting(self, key: ObjectKey) -> "_Waiting | None":
        """Remove the pod from the queues; returns its entry if placement was tried since it was queued."""
        known = self._waiting.pop(key, None)
        has_been_tried = key not in self._due
        self._gated.discard(key)
        self._malformed.pop(key, None)
        self._due.discard(key)
        return known if has_been_tried else None

    def _leave(self, key: ObjectKey) -> None:
        placed = self._placed.pop(key, None)
        if placed and placed[0] in self._nodes:
            self._nodes[placed[0]].take(placed[1], sign=-1)
            self._has_more_capacity = True

    def _settle(self, key: ObjectKey, pod: PodSeen) -> None:
        """Account for a pod on a node, unless the scheduler bound it and did so already."""
        if key in self._placed or not pod.spec.node_name:
            return
        try:
            requests = pod_requests(pod.raw_spec())
        except QuantityError:
            return
        self._place(key, pod.spec.node_name, requests)

    def _place(self, key: ObjectKey, node: str, requests: Requests) -> None:
        self._placed[key] = (node, requests)
        if node in self._nodes:
            self._nodes[node].take(requests)

    def _wait(self, key: ObjectKey, pod: PodSeen, known: "_Waiting | None") -> None:
        """Queue the pod; a pending pod with unchanged needs keeps its entry and is not tried again."""
        spec = pod.raw_spec()
        if pod.fault:
            self._malformed[key] = pod.fault
        elif pod.spec.scheduling_gates:
            self._gated.add(key)
        else:
            try:
                requests = pod_requests(spec)
            except QuantityError as error:
                self._malformed[key] = str(error)
            else:
                wants = [spec.get(field) for field in ("nodeSelector", "tolerations")]
                claims = _claims_of(spec)
                if claims:
                    self._waiting_for_claims.add(key)
                shape = encode(
                    [sorted(requests.items()), wants, required_terms(spec), claims and [key.namespace, claims]]
                )
                if known is not None and known.shape == shape:
                    self._waiting[key] = known
                    return
                arrival = self._arrived.setdefault(key, next(self._arrivals))
                order = (-(pod.spec.priority or 0), _seconds(pod.metadata.creation_timestamp), arrival)
                self._waiting[key] = _Waiting(spec, requests, shape, order)
        self._due.add(key)

    # --- acting --------------------------------------------------------------------------------------------------------
    def act(self, now: datetime) -> datetime | None:
        """Bind the pods that fit, and report why the others do not."""
        due = set(self._waiting) | self._due if self._has_more_capacity else self._due
        self._has_more_capacity, self._due = False, set()
        for key in sorted(due & self._gated):
            self._explain(key, "SchedulingGated", GATED_MESSAGE, now)
        for key in sorted(due & self._malformed.keys()):
            self._explain(key, "Unschedulable", self._malformed[key], now)
        unschedulable: dict[bytes, str] = {}
        for key in sorted(due & self._waiting.keys(), key=lambda key: (self._waiting[key].order, key)):
            waiting = self._waiting[key]
            message = unschedulable.get(waiting.shape)
            if message is None:
                capacity, message = self._choose(key, waiting)
                if capacity is not None:
                    self._bind(key, waiting, capacity, now)
                    continue
                unschedulable[waiting.shape] = message
            if waiting.reported != message:
                waiting.reported = message
                self._explain(key, "Unschedulable", message, now)
        return None

    def _choose(self, key: ObjectKey, waiting: _Waiting) -> tuple[NodeCapacity | None, str]:
        """The most preferred node that fits, of equal ones the one that is least allocated with it; or None and the reason."""
        if fault := self._claim_fault(key, waiting):
            return None, f"0/{len(self._nodes)} nodes are available: {fault}."
        best: NodeCapacity | None = None
        best_rank: tuple[int, float, str] | None = None
        reasons_by_node: list[list[str]] = []
        for capacity in self._nodes.values():
            reasons = rule_out(waiting.spec, waiting.requests, capacity)
            if reasons:
                reasons_by_node.append(reasons)
                continue
            rank = -preference(waiting.spec, capacity), -capacity.free_share(waiting.requests), capacity.name
            if best_rank is None or rank < best_rank:
                best, best_rank = capacity, rank
        return (best, "") if best else (None, unschedulable_message(reasons_by_node))

    def _claim_fault(self, key: ObjectKey, waiting: _Waiting) -> str:
        """Why the pod waits for one of its claims, in the scheduler's words; empty if it does not."""
        for name in _claims_of(waiting.spec):
            claim = self._store.find(CLAIMS, key.namespace, name)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if claim.is_terminating:
                return f'persistentvolumeclaim "{name}" is being deleted'
            if (claim.shared().get("status") or {}).get("phase") != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""

    def _bind(self, key: ObjectKey, waiting: _Waiting, capacity: NodeCapacity, now: datetime) -> None:
        del self._waiting[key]
        entry = self._store.find(*key)
        if entry is None:
            return
        pod = entry.obj()
        if not attempt(lambda: self._write_binding(pod, capacity.name, now)):
            return  # another client wrote first; its change is already queued
        self._place(key, capacity.name, waiting.requests)
        message = f"Successfully assigned {key.namespace}/{key.name} to {capacity.name}"
        self._record(pod, "Normal", "Scheduled", message, now)

    def _write_binding(self, pod: Json, node: str, now: datetime) -> None:
        bind_pod(pod, node, moment=format_time(now))
        self._store.update("pods", pod, subresource="binding")

    def _explain(self, key: ObjectKey, reason: str, message: str, now: datetime) -> None:
        """Set PodScheduled=False, and record an event for Unschedulable if the condition changed."""
        entry = self._store.find(*key)
        if entry is None or entry.is_terminating:
            return
        pod = entry.obj()
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        if not set_condition(pod.setdefault("status", {}), condition, now):
            return
        if attempt(lambda: self._store.update("pods", pod, subresource="status")) and reason == "Unschedulable":
            self._record(pod, "Warning", "FailedScheduling", message, now)

    def _record(self, pod: Json, kind: str, reason: str, message: str, now: datetime) -> None:
        record_event(self._store, pod, kind=kind, reason=reason, message=message, now=now, component=SCHEDULER)


def _claims_of(spec: Mapping[str, Any]) -> list[str]:
    """The names of the pod's PersistentVolumeClaims."""
    claims = (volume.get("persistentVolumeClaim") for volume in spec.get("volumes") or ())
    return [claim.get("claimName", "") for claim in claims if claim]


def _seconds(text: str) -> int:
    """A timestamp in seconds for ordering, 0 if it is invalid."""
    moment = parse_time(text)
    return int(moment.timestamp()) if moment else 0
