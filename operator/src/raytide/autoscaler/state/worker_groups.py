"""Worker groups of the RayCluster as they stand in the spec.

Takes the object as JSON and returns a small frozen view per named entry of `workerGroupSpecs`, with values unchanged
and absent ones as None, so that a patch can test them. Invalid input is tolerated: an entry without a name is left out,
of a duplicate name the first entry counts, a non-number counts as absent (C-11, B-10). Read by current_targets.py
and autoscaler/scaling.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raytide.api.autoscaler_decision import clamp_between
from raytide.api.quantity import MAX_INT32


@dataclass(frozen=True, slots=True)
class SpecGroup:
    """One worker group as it stands in the spec; `index` is its place in the list, for JSON pointers."""

    index: int
    name: str
    replicas: int | None = None
    min_replicas: int = 0
    max_replicas: int = MAX_INT32
    num_of_hosts: int = 1
    is_suspended: bool = False
    workers_to_delete: tuple[str, ...] | None = None
    """None: the list is absent."""
    has_scale_strategy: bool = False

    @property
    def spec_replicas(self) -> int:
        """Replicas an operator derives from the spec alone (RC:WG-2)."""
        return self.clamp(self.min_replicas if self.replicas is None else self.replicas)

    def clamp(self, replicas: int) -> int:
        """Limit replicas to min and max as the operator does (RC:WG-2)."""
        return clamp_between(replicas, self.min_replicas, self.max_replicas)


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
    )


def _map(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _number(found: Any) -> int | None:
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _or(found: int | None, default: int) -> int:
    return default if found is None else found
