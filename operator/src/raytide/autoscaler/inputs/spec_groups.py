"""What does the RayCluster say about its worker groups at this moment?

Takes the object as JSON, gives one small frozen view per entry of `workerGroupSpecs` that has a name, with the values as
they stand, absent ones as None, so that a patch can test them. It forgives everything: an entry without a name is left
out, a duplicate name counts once, a number that is none is absent (C-11, B-10). Read by targets.py, patch.py and tick.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raytide.api.quantity import MAX_INT32
from raytide.api.scaling import clamp_between


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
    """None: the list is not there."""
    has_scale_strategy: bool = False

    @property
    def standing_replicas(self) -> int:
        """What an operator makes of the spec alone (RC:WG-2)."""
        return self.clamp(self.min_replicas if self.replicas is None else self.replicas)

    def clamp(self, replicas: int) -> int:
        """Between min and max, as the operator has it (RC:WG-2)."""
        return clamp_between(replicas, self.min_replicas, self.max_replicas)


def spec_groups(cluster: Mapping[str, Any]) -> tuple[SpecGroup, ...]:
    """The groups in the order of the spec."""
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
