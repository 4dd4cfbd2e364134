"""What does a person read about who scales a RayCluster, and why it does not grow?

Takes the cluster and how it is scaled, and gives three conditions of ours that stand there only while there is something
to say: `AutoscalerDown`, `ReplicasContended` and `ScalingLimited` (SC:S21). The first two are there with status False
from the moment on from which the seconds count: that is the operator's whole memory, and it survives a restart. Called by
status_conditions.py; rules of D19, SC:S6. Times move only when a status does (RC:K-6).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from raytide.api import names
from raytide.api.conditions import ConditionJson, Saying, find_condition, moment_of
from raytide.api.raycluster import RayCluster
from raytide.api.scaling import Why
from raytide.raycluster.scaling import STALE_AFTER, Scaling, clamp, clamp_replicas, is_stale
from raytide.raycluster.suspension import Suspension, suspension_of

CONTENDED_AFTER: Final = timedelta(seconds=10)
SETTLED_AFTER: Final = timedelta(seconds=15)
OTHER_REASON: Final = "Other"
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")
"""What the API server takes for the reason of a condition; one bad word would cost the whole status."""


def scaling_sayings(cluster: RayCluster, scaling: Scaling, now: datetime) -> dict[str, Saying | None]:
    """The three conditions by type; None where there is nothing to say, as while the cluster is suspended."""
    if suspension_of(cluster) is not Suspension.NONE:
        return dict.fromkeys((names.AUTOSCALER_DOWN, names.REPLICAS_CONTENDED, names.SCALING_LIMITED))
    return {
        names.AUTOSCALER_DOWN: autoscaler_down(cluster, scaling, now),
        names.REPLICAS_CONTENDED: replicas_contended(cluster, scaling, now),
        names.SCALING_LIMITED: scaling_limited(cluster, scaling),
    }


def next_look_in(
    cluster: RayCluster, scaling: Scaling, computed: Sequence[ConditionJson], now: datetime
) -> float | None:
    """Seconds until one of them has to change though nothing happens; None when only news matter.

    `now` is the moment for which they were computed. A deadline that was past even then is nobody's any more: an invalid
    cluster keeps its conditions as they were, and looking again would change nothing, for ever.
    """
    waits = []
    down = find_condition(computed, names.AUTOSCALER_DOWN)
    if down is not None and down.get("status") == "False":
        waits.append(_left(down, STALE_AFTER, now))
    contended = find_condition(computed, names.REPLICAS_CONTENDED)
    if contended is not None and not _differences(cluster, scaling):
        waits.append((_agreed_since(cluster, contended, now) + SETTLED_AFTER - now).total_seconds())
    elif contended is not None and contended.get("status") == "False":
        waits.append(_left(contended, CONTENDED_AFTER, now))
    return min((wait for wait in waits if wait > 0), default=None)


def autoscaler_down(cluster: RayCluster, scaling: Scaling, now: datetime) -> Saying | None:
    """Nobody makes decisions: False as long as the last one is obeyed still, True when `spec.replicas` rules."""
    fault = scaling.fault
    if fault is None:
        return None
    minutes = int(STALE_AFTER.total_seconds() // 60)
    if scaling.record is None:
        who = "spec.replicas rules, nobody is deleted for it"
    else:
        who = f"the last decision is obeyed until it has been so for {minutes} minutes"
    message = f"{fault.message}; {who}"
    return Saying(names.AUTOSCALER_DOWN, status=is_stale(cluster, now), reason=fault.reason, message=message)


def replicas_contended(cluster: RayCluster, scaling: Scaling, now: datetime) -> Saying | None:
    """Somebody else writes `replicas`: True after ten seconds, gone after fifteen seconds of agreement (SC:S6).

    Agreement that lasts less does not end it, because the sidecar writes its number back every ten seconds.
    """
    if scaling.record is None or scaling.fault is not None:
        return None
    told = find_condition(cluster.status.get("conditions") or (), names.REPLICAS_CONTENDED)
    differences = _differences(cluster, scaling)
    if not differences:
        if told is None or now - _agreed_since(cluster, told, now) >= SETTLED_AFTER:
            return None
        return Saying(
            names.REPLICAS_CONTENDED, told.get("status", "False"), told.get("reason", ""), told.get("message", "")
        )
    is_old = told is not None and (told.get("status") == "True" or _left(told, CONTENDED_AFTER, now) <= 0)
    reason = "ReplicasRewritten" if is_old else "ReplicasDiffer"
    return Saying(names.REPLICAS_CONTENDED, status=is_old, reason=reason, message="; ".join(differences))


def scaling_limited(cluster: RayCluster, scaling: Scaling) -> Saying | None:
    """Why there are not more workers, in the autoscaler's words (SC:S21)."""
    reasons = list(_reasons(cluster, scaling))
    if not reasons:
        return None
    message = "; ".join(_told(group, why) for group, why in reasons)
    reason = reasons[0][1].reason
    word = reason if _REASON.fullmatch(reason) else OTHER_REASON
    return Saying(names.SCALING_LIMITED, status=True, reason=word, message=message)


# --- parts ---------------------------------------------------------------------------------------------------------------


def _left(told: Mapping[str, Any], limit: timedelta, now: datetime) -> float:
    """Seconds until the condition has stood with its status for so long."""
    since = moment_of(str(told.get("lastTransitionTime"))) or now
    return (since + limit - now).total_seconds()


def _differences(cluster: RayCluster, scaling: Scaling) -> list[str]:
    """The groups whose `replicas` are not what the autoscaler decided, both between min and max, and who wrote them."""
    found = []
    for group in cluster.spec.worker_group_specs:
        decision = scaling.decision_of(group)
        if decision is None or clamp_replicas(group) == clamp(decision.replicas, group):
            continue
        writer = last_writer(cluster, group.group_name)
        by = f" (written by {writer})" if writer else ""
        text = f"group {group.group_name}: replicas is {clamp_replicas(group)}{by}, the autoscaler decided {decision.replicas}"
        is_repeated = group.replicas is not None and group.replicas == decision.foreign
        found.append(text + (f"; {group.replicas} was obeyed once already" if is_repeated else ""))
    return found


def _reasons(cluster: RayCluster, scaling: Scaling) -> Iterator[tuple[str, Why]]:
    """Group and reason, in the order of the spec; what is no group's comes last."""
    if scaling.record is None:
        return
    for group in cluster.spec.worker_group_specs:
        decision = scaling.decision_of(group)
        yield from ((group.group_name, why) for why in (decision.why if decision else ()))
    yield from (("", why) for why in scaling.record.why)


def _told(group: str, why: Why) -> str:
    count = f"{why.count} × " if why.count else ""
    return (f"group {group}: " if group else "") + f"{count}{why.reason}" + (f" ({why.message})" if why.message else "")


# --- who wrote last ------------------------------------------------------------------------------------------------------


def last_writer(cluster: RayCluster, group: str) -> str:
    """The field manager that wrote the group's replicas last and is not the autoscaler; empty when nobody is known."""
    writers = [
        (written.at, written.manager)
        for written in _writes(cluster)
        if written.manager and not written.is_sidecar and written.is_of(group)
    ]
    return max(writers)[1] if writers else ""


def _agreed_since(cluster: RayCluster, told: Mapping[str, Any], now: datetime) -> datetime:
    """Since when spec and record can have been the same at the earliest: the last time anybody wrote replicas.

    Found in the object itself, so that nobody has to remember it. A time in the future is not believed.
    """
    groups = [group.group_name for group in cluster.spec.worker_group_specs]
    moments = [written.at for written in _writes(cluster) if written.at <= now and any(map(written.is_of, groups))]
    since = moment_of(str(told.get("lastTransitionTime"))) or now
    return max([since, *moments])


@dataclass(frozen=True, slots=True)
class _Write:
    """An entry of managedFields that owns something of the worker groups."""

    at: datetime
    manager: str
    is_sidecar: bool
    groups: Mapping[str, Any]
    """By `k:{"groupName":…}` where the list is a map, as in our CRD; empty where it is owned as one, as in KubeRay's."""

    def is_of(self, group: str) -> bool:
        """Whether it owns that group's replicas."""
        key = msgspec.json.encode({"groupName": group}).decode()
        return not self.groups or "f:replicas" in _inner(self.groups, f"k:{key}")


def _writes(cluster: RayCluster) -> Iterator[_Write]:
    entries = (cluster.raw.get("metadata") or {}).get("managedFields")
    for entry in entries if isinstance(entries, list) else ():
        fields = entry.get("fieldsV1") if isinstance(entry, Mapping) else None
        at = moment_of(str(entry.get("time"))) if fields else None
        spec = _inner(fields, "f:spec")
        if at is None or "f:workerGroupSpecs" not in spec:
            continue
        annotations = _inner(_inner(fields, "f:metadata"), "f:annotations")
        manager = str(entry.get("manager") or "")
        is_sidecar = manager == names.AUTOSCALER_FIELD_MANAGER or (
            f"f:{names.AUTOSCALER_DECISION_ANNOTATION}" in annotations
        )
        yield _Write(at, manager, is_sidecar, _inner(spec, "f:workerGroupSpecs"))


def _inner(fields: Any, key: str) -> Mapping[str, Any]:
    found = fields.get(key) if isinstance(fields, Mapping) else None
    return found if isinstance(found, Mapping) else {}
