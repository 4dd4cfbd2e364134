"""Worker groups of the RayCluster as they stand in the spec.

Takes the object as JSON and returns a `SpecGroup` per named entry of `workerGroupSpecs`. Invalid input is tolerated: an
entry without a name is left out, of a duplicate name the first entry counts, a non-number counts as absent (C-11, B-10).
Called by current_targets.py.
"""

from collections.abc import Mapping
from typing import Any

from raytide.api.limits import MAX_GATE_TYPE, MAX_GATES
from raytide.api.quantity import MAX_INT32
from raytide.autoscaler.spec_group import SpecGroup


def spec_groups(cluster: Mapping[str, Any]) -> tuple[SpecGroup, ...]:
    """The groups in spec order."""
    entries = _map(cluster.get("spec")).get("workerGroupSpecs")
    found: dict[str, SpecGroup] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        name = _map(entry).get("groupName")
        if isinstance(name, str) and name and name not in found:
            found[name] = _group(index, name, entry)
    return tuple(found.values())


def _group(index: int, name: str, entry: Mapping[str, Any]) -> SpecGroup:
    strategy = entry.get("scaleStrategy")
    names = _map(strategy).get("workersToDelete")
    return SpecGroup(
        index=index,
        name=name,
        replicas=_number(entry.get("replicas")),
        min_replicas=max(0, _number(entry.get("minReplicas")) or 0),
        max_replicas=_or(_number(entry.get("maxReplicas")), MAX_INT32),
        num_of_hosts=max(1, _or(_number(entry.get("numOfHosts")), 1)),
        is_suspended=entry.get("suspend") is True,
        workers_to_delete=tuple(n for n in names if isinstance(n, str)) if isinstance(names, list) else None,
        has_scale_strategy=isinstance(strategy, Mapping),
        scale_gates=_gates(_map(strategy).get("scaleGate")),
    )


def _gates(entries: Any) -> tuple[str, ...]:
    """An entry without a type is a gate, too: what counts is that the list is not empty."""
    types = (_map(entry).get("type") for entry in (entries[:MAX_GATES] if isinstance(entries, list) else ()))
    return tuple(found[:MAX_GATE_TYPE] if isinstance(found, str) and found else "without a type" for found in types)


def _map(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _number(found: Any) -> int | None:
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _or(found: int | None, default: int) -> int:
    return default if found is None else found
