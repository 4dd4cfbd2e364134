"""Scaling conditions of a RayCluster: `AutoscalerDown`, `ReplicasContended` and `ScalingLimited`.

Takes the cluster and its scaling state, and returns the three conditions (SC:S21); each is present only while it
applies. The first two are set with status False when their time limit starts, so lastTransitionTime is the operator's
only state for them and survives a restart. It changes only when a status does (RC:K-6). Rules of D19, SC:S6. Called by
conditions.py.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from raytide.api import constants
from raytide.api.autoscaler_decision import PERMANENT_REASONS
from raytide.api.conditions import ConditionJson, ConditionUpdate, find_condition, parse_timestamp
from raytide.api.field_managers import inner, latest_entries
from raytide.api.raycluster import RayCluster
from raytide.diagnosis.model import Diagnosis
from raytide.diagnosis.render import holder_and_fix
from raytide.raycluster import causes, messages
from raytide.raycluster.desired_replicas import STALE_AFTER, ScalingState, clamp_replicas, is_stale
from raytide.raycluster.observed import Observed
from raytide.raycluster.suspension import Suspension, suspension_of

CONTENDED_AFTER: Final = timedelta(seconds=10)
SETTLED_AFTER: Final = timedelta(seconds=15)
_REASON_PATTERN: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")
"""Format of a condition's reason; the API server rejects the whole status patch for one that does not match."""


def scaling_conditions(
    cluster: RayCluster, observed: Observed, scaling: ScalingState
) -> dict[str, ConditionUpdate | None]:
    """The three conditions by type; None for one that does not apply, and for all while the cluster is suspended."""
    if suspension_of(cluster) is not Suspension.NONE:
        return dict.fromkeys((constants.AUTOSCALER_DOWN, constants.REPLICAS_CONTENDED, constants.SCALING_LIMITED))
    now = observed.seen_at
    return {
        constants.AUTOSCALER_DOWN: autoscaler_down(cluster, scaling, now),
        constants.REPLICAS_CONTENDED: replicas_contended(cluster, scaling, now),
        constants.SCALING_LIMITED: scaling_limited(cluster, observed, scaling),
    }


def scaling_requeue_after_s(
    cluster: RayCluster, scaling: ScalingState, computed: Sequence[ConditionJson], now: datetime
) -> float | None:
    """Seconds until one of them changes by the passing of time alone; None when only a watch event can change them.

    `now` is the moment for which they were computed. A deadline that had already passed then is ignored: an invalid
    cluster keeps its conditions, and would be reconciled for that deadline again and again.
    """
    waits = []
    down = find_condition(computed, constants.AUTOSCALER_DOWN)
    if down is not None and down.get("status") == "False":
        waits.append(_left(down, STALE_AFTER, now))
    contended = find_condition(computed, constants.REPLICAS_CONTENDED)
    if contended is not None and not contended_groups(cluster, scaling):
        waits.append((_agreed_since(cluster, contended, now) + SETTLED_AFTER - now).total_seconds())
    elif contended is not None and contended.get("status") == "False":
        waits.append(_left(contended, CONTENDED_AFTER, now))
    return min((wait for wait in waits if wait > 0), default=None)


def autoscaler_down(cluster: RayCluster, scaling: ScalingState, now: datetime) -> ConditionUpdate | None:
    """No valid decision record: False while the last record is still obeyed, True when `spec.replicas` applies."""
    problem = scaling.record_problem
    if problem is None:
        return None
    minutes = int(STALE_AFTER.total_seconds() // 60)
    message = messages.autoscaler_down(problem.message, is_obeyed=scaling.record is not None, minutes=minutes)
    return ConditionUpdate(
        constants.AUTOSCALER_DOWN, status=is_stale(cluster, now), reason=problem.reason, message=message
    )


def replicas_contended(cluster: RayCluster, scaling: ScalingState, now: datetime) -> ConditionUpdate | None:
    """Another writer changes `replicas`: True after 10 seconds, removed after 15 seconds of agreement (SC:S6).

    A shorter agreement does not end it, because the sidecar writes its own number back every ten seconds.
    """
    if scaling.record is None or scaling.record_problem is not None:
        return None
    condition = find_condition(cluster.status.get("conditions") or (), constants.REPLICAS_CONTENDED)
    differences = contended_groups(cluster, scaling)
    if not differences:
        if condition is None or now - _agreed_since(cluster, condition, now) >= SETTLED_AFTER:
            return None
        return ConditionUpdate(
            constants.REPLICAS_CONTENDED,
            condition.get("status", "False"),
            condition.get("reason", ""),
            condition.get("message", ""),
        )
    is_old = condition is not None and (
        condition.get("status") == "True" or _left(condition, CONTENDED_AFTER, now) <= 0
    )
    reason = constants.REPLICAS_REWRITTEN if is_old else constants.REPLICAS_DIFFER
    found = contention(reason, differences)
    message = found.message + holder_and_fix(found, causes.workload_of(cluster))
    return ConditionUpdate(constants.REPLICAS_CONTENDED, status=is_old, reason=reason, message=message)


def scaling_limited(cluster: RayCluster, observed: Observed, scaling: ScalingState) -> ConditionUpdate | None:
    """`ScalingLimited`: the autoscaler's reasons why there are not more workers, holder and fix; None if it reports none (SC:S21)."""
    limits = list(_reported_limits(cluster, scaling))
    if not limits:
        return None
    texts = [messages.scaling_limited(group, limit) for group, limit in limits]
    for index, (group, limit) in enumerate(limits[: causes.MAX_FIXES]):
        texts[index] += holder_and_fix(causes.of_limit(cluster, observed, group, limit), causes.workload_of(cluster))
    _, first_limit = limits[0]
    condition_reason = first_limit.reason if _REASON_PATTERN.fullmatch(first_limit.reason) else constants.OTHER_LIMIT
    return ConditionUpdate(constants.SCALING_LIMITED, status=True, reason=condition_reason, message="; ".join(texts))


# --- parts ------------------------------------------------------------------------------------------------------------


def _left(condition: Mapping[str, Any], limit: timedelta, now: datetime) -> float:
    """Seconds until the condition's status is as old as `limit`; zero or less when it already is."""
    since = parse_timestamp(str(condition.get("lastTransitionTime"))) or now
    return (since + limit - now).total_seconds()


class ContendedGroup(NamedTuple):
    """A group whose clamped `replicas` differ from the autoscaler's clamped decision."""

    group: str
    replicas: int
    """In the spec, clamped."""
    writer: str
    """Field manager that wrote them last; empty if it is not known."""
    decided: int
    """By the autoscaler."""
    applied: int | None
    """The written number, if it was adopted before and is not adopted again."""


def contention(reason: str, groups: Sequence[ContendedGroup]) -> Diagnosis:
    """Other clients write `replicas` of these groups; without any, sizes and decision have agreed for a moment."""
    message = "; ".join(messages.replicas_contended(*each) for each in groups) or messages.REPLICAS_AGREE
    return Diagnosis(reason, message=message).having(
        writer=", ".join(dict.fromkeys(each.writer for each in groups if each.writer))
    )


def contended_groups(cluster: RayCluster, scaling: ScalingState) -> list[ContendedGroup]:
    """The groups in whose size the spec differs from the autoscaler's decision."""
    found = []
    writes = _writes(cluster)
    for group in cluster.spec.worker_group_specs:
        decision = scaling.decision_of(group)
        if decision is None or clamp_replicas(group) == group.clamp(decision.replicas):
            continue
        writer = _last_writer(writes, group.group_name)
        applied = group.replicas if group.replicas == decision.adopted_replicas else None
        found.append(ContendedGroup(group.group_name, clamp_replicas(group), writer, decision.replicas, applied))
    return found


def _reported_limits(cluster: RayCluster, scaling: ScalingState) -> Iterator[tuple[str, Diagnosis]]:
    """(group, limit) in the order of the spec, then the limits that concern no single group, with an empty group.

    Limits that waiting does not end come first, so that a limit that may end at any time does not hide them.
    """
    if scaling.record is None:
        return
    limits = [
        *(
            (group.group_name, why)
            for group in cluster.spec.worker_group_specs
            if (decision := scaling.decision_of(group)) is not None
            for why in decision.why
        ),
        *(("", why) for why in scaling.record.why),
    ]
    yield from sorted(limits, key=lambda limit: limit[1].reason not in PERMANENT_REASONS)


# --- field managers ---------------------------------------------------------------------------------------------------


def last_writer(cluster: RayCluster, group: str) -> str:
    """The field manager, other than the sidecar, that last wrote the group's replicas; empty if there is none."""
    return _last_writer(_writes(cluster), group)


def _last_writer(writes: Iterable["_Write"], group: str) -> str:
    """The field manager, other than the sidecar, that last wrote the group's replicas; empty if there is none."""
    key = _key_of(group)
    writers = [
        (written.at, written.manager)
        for written in writes
        if written.manager and not written.is_sidecar and written.is_of(key)
    ]
    return max(writers)[1] if writers else ""


def _agreed_since(cluster: RayCluster, condition: Mapping[str, Any], now: datetime) -> datetime:
    """The earliest moment from which spec and record can have agreed: the last write of replicas by any manager.

    Read from managedFields, so that it needs no memory. A time in the future is ignored.
    """
    keys = [_key_of(group.group_name) for group in cluster.spec.worker_group_specs]
    moments = [written.at for written in _writes(cluster) if written.at <= now and any(map(written.is_of, keys))]
    since = parse_timestamp(str(condition.get("lastTransitionTime"))) or now
    return max([since, *moments])


@dataclass(frozen=True, slots=True)
class _Write:
    """An entry of managedFields that owns fields of the worker groups."""

    at: datetime
    manager: str
    is_sidecar: bool
    groups: Mapping[str, Any]
    """By `k:{"groupName":…}` where the list is a map, as in our CRD; empty where it is atomic, as in KubeRay's CRD."""

    def is_of(self, key: str) -> bool:
        """Whether the entry owns the replicas of the group with that key."""
        return not self.groups or "f:replicas" in inner(self.groups, key)


def _key_of(group: str) -> str:
    return f"k:{msgspec.json.encode({'groupName': group}).decode()}"


def _writes(cluster: RayCluster) -> list[_Write]:
    return list(_each_write(latest_entries(cluster.raw)))


def _each_write(entries: Iterable[Mapping[str, Any]]) -> Iterator[_Write]:
    for entry in entries:
        fields = entry.get("fieldsV1")
        at = parse_timestamp(str(entry.get("time"))) if fields else None
        spec = inner(fields, "f:spec")
        if at is None or "f:workerGroupSpecs" not in spec:
            continue
        annotations = inner(fields, "f:metadata", "f:annotations")
        manager = str(entry.get("manager") or "")
        is_sidecar = manager == constants.AUTOSCALER_FIELD_MANAGER or (
            f"f:{constants.AUTOSCALER_DECISION_ANNOTATION}" in annotations
        )
        yield _Write(at, manager, is_sidecar, inner(spec, "f:workerGroupSpecs"))
