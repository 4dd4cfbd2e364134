"""JSON patch that writes the decision to the RayCluster.

Takes the RayCluster as read and the target of each group, and returns one patch with absolute counts, names and the
record. Every changed value is guarded by `test` operations on the object's uid, the group's name at its index and the
old value, so that a concurrent edit or a shifted index fails the whole patch (B-9, B-25, RM:I24). The spec's generation
is tested too, since the decision may rest on an outdated spec from a lagging watch. Called by decision_patch.py;
sent by autoscaler/provider/provider.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raytide.api import constants
from raytide.autoscaler.spec_group import SpecGroup
from raytide.autoscaler.state.snapshot import Operation

UID_PATH: Final = "/metadata/uid"
GENERATION_PATH: Final = "/metadata/generation"
VERSION_PATH: Final = "/metadata/resourceVersion"


@dataclass(frozen=True, slots=True)
class GroupChange:
    """New values of one group; None leaves a value unchanged."""

    group: SpecGroup
    replicas: int | None = None
    workers_to_delete: tuple[str, ...] | None = None

    @property
    def has_new_replicas(self) -> bool:
        """Whether `replicas` must be written."""
        return self.replicas is not None and self.replicas != self.group.replicas

    @property
    def has_new_names(self) -> bool:
        """Whether `workersToDelete` must be written; an absent list equals an empty one."""
        return self.workers_to_delete is not None and self.workers_to_delete != (self.group.workers_to_delete or ())

    @property
    def is_needed(self) -> bool:
        """Whether anything must be written."""
        return self.has_new_replicas or self.has_new_names


def build_patch(
    cluster: Mapping[str, Any], changes: Iterable[GroupChange], record: str | None
) -> tuple[Operation, ...]:
    """The patch; empty if neither a group nor the record (None: unchanged) has to change."""
    needed = [change for change in changes if change.is_needed]
    if not needed and record is None:
        return ()
    guards: list[Operation] = [_test(UID_PATH, cluster["metadata"]["uid"])]
    generation = cluster["metadata"].get("generation")
    if generation is not None:
        guards.append(_test(GENERATION_PATH, generation))
    writes = [operation for change in needed for operation in _group_operations(change)]
    return (*guards, *writes, *(_record_operations(cluster, record) if record is not None else ()))


def pointer(*steps: str | int) -> str:
    """A JSON pointer to these keys and indices (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _group_operations(change: GroupChange) -> Iterator[Operation]:
    group = change.group
    root = ("spec", "workerGroupSpecs", group.index)
    yield _test(pointer(*root, "groupName"), group.name)
    if change.has_new_replicas:
        yield from _write(pointer(*root, "replicas"), group.replicas, change.replicas)
    if change.has_new_names and change.workers_to_delete is not None:
        new_names = list(change.workers_to_delete)
        if not group.has_scale_strategy:
            yield _add(pointer(*root, "scaleStrategy"), {"workersToDelete": new_names})
        else:
            current = None if group.workers_to_delete is None else list(group.workers_to_delete)
            yield from _write(pointer(*root, "scaleStrategy", "workersToDelete"), current, new_names)


def _write(path: str, old: Any, new: Any) -> Iterator[Operation]:
    if old is None:
        yield _add(path, new)
        return
    yield _test(path, old)
    yield {"op": "replace", "path": path, "value": new}


def _record_operations(cluster: Mapping[str, Any], record: str) -> Iterator[Operation]:
    metadata = cluster["metadata"]
    if metadata.get("annotations") is None:
        if version := metadata.get(
            "resourceVersion"
        ):  # annotations do not change the generation: a concurrent one must not be lost
            yield _test(VERSION_PATH, version)
        yield _add(pointer("metadata", "annotations"), {constants.AUTOSCALER_DECISION_ANNOTATION: record})
    else:
        yield _add(pointer("metadata", "annotations", constants.AUTOSCALER_DECISION_ANNOTATION), record)


def _test(path: str, value: Any) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}
