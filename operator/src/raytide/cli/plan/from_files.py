"""Snapshot from files: objects given to `raytide plan`.

Takes YAML or JSON as `kubectl get -o yaml` prints it (a `kind: List`, several documents, a bare list); returns the
views of api/capacity.py, the parsed TrainingJobs, and the TrainingJobs and RayClusters to submit. Other kinds are left out
and counted. Unreadable input is one `InputError`, whose line names the file, the document, the object and the field. Uses
only the text it is given.
"""

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import NoneType
from typing import Any, Final, TypeVar

import msgspec
import yaml
from pydantic import ValidationError

from raytide.api import meta
from raytide.api.base_model import faults_of
from raytide.api.capacity import (
    capacity_node_from_object,
    capacity_pod_from_object,
    capacity_quota_from_object,
    namespace_from_object,
    priority_class_from_object,
)
from raytide.api.meta import Key, Manifest, Resource
from raytide.api.quantity import QuantityError
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import INDEX_LABEL, JOB_LABEL, ROLE_JOB_LABELS, ROLE_LABEL, SHARING_ANNOTATION
from raytide.simulator.assumed_pods import placeholder_uid, with_placeholder_uid
from raytide.simulator.inputs import PlanInputs, Submission
from raytide.simulator.raycluster_pods import MAX_PODS, NewRayCluster, RejectedError, new_raycluster
from raytide.trainingjob.validation import violations

T = TypeVar("T")

READ: Final = (meta.NODES, meta.PODS, meta.RESOURCE_QUOTAS, meta.PRIORITY_CLASSES, meta.NAMESPACES, meta.TRAININGJOBS)
"""The kinds that are read; all others are skipped."""
SUBMITTED: Final = (meta.TRAININGJOBS, meta.RAYCLUSTERS)
"""The kinds that can be submitted."""
_NAMED: Final = (*READ, meta.RAYCLUSTERS)
MAX_INT64: Final = (1 << 63) - 1
_OF_THE_SERVER: Final = frozenset({"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"})


class InputError(Exception):
    """Unreadable input; the message is one line that names place and fault."""


@dataclass(frozen=True, slots=True)
class Found:
    """One object, and where it was found."""

    manifest: Manifest
    where: str

    @property
    def name(self) -> str:
        """`Kind namespace/name` for messages."""
        metadata = self.manifest["metadata"]
        path = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
        return f"{self.manifest['kind']} {path}"

    def is_of(self, resource: Resource) -> bool:
        """Whether it is of that kind; the group counts because other projects also have a TrainingJob."""
        group = str(self.manifest["apiVersion"]).rpartition("/")[0]
        return self.manifest["kind"] == resource.kind and group == resource.group


def read_snapshot(files: Iterable[tuple[str, str]], namespace: str) -> PlanInputs:
    """Parse files of (name, text); objects without a namespace get `namespace`; raises InputError."""
    found = [_within(one, namespace) for name, text in files for one in objects_in(name, text)]
    _reject_duplicates(found)
    jobs = tuple(with_placeholder_uid(job) for job in _views(found, meta.TRAININGJOBS, TrainingJob.parse))
    uids = {job.key: job.metadata.uid for job in jobs}
    found = [replace(one, manifest=_adopted(one.manifest, uids)) if one.is_of(meta.PODS) else one for one in found]
    clusters = [one.manifest for one in found if one.is_of(meta.RAYCLUSTERS)]
    return PlanInputs(
        nodes=_views(found, meta.NODES, capacity_node_from_object),
        pods=_views(found, meta.PODS, capacity_pod_from_object),
        quotas=_views(found, meta.RESOURCE_QUOTAS, capacity_quota_from_object),
        priority_classes=_views(found, meta.PRIORITY_CLASSES, priority_class_from_object),
        namespaces=_views(found, meta.NAMESPACES, namespace_from_object),
        jobs=jobs,
        clusters=frozenset(Key(each["metadata"]["namespace"], each["metadata"]["name"]) for each in clusters),
        notes=tuple(_skipped(found)),
    )


def _within(one: Found, namespace: str) -> Found:
    """Set the namespace of a namespaced object of a known kind that has none."""
    metadata = one.manifest["metadata"]
    if metadata.get("namespace") or not any(one.is_of(kind) for kind in _NAMED if kind.is_namespaced):
        return one
    return replace(one, manifest={**one.manifest, "metadata": {**metadata, "namespace": namespace}})


def _key(one: Found, namespace: str) -> Key:
    metadata = one.manifest["metadata"]
    return Key(str(metadata.get("namespace") or namespace), str(metadata["name"]))


def _adopted(pod: Manifest, uids: Mapping[Key, str]) -> Manifest:
    """Add the operator's labels and owner to a pod that only Paddle's labels tie to a listed job."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    controllers = [each.get("uid") for each in metadata.get("ownerReferences") or () if each.get("controller")]
    for role, label in ROLE_JOB_LABELS.items():
        job = Key(str(metadata.get("namespace", "")), str(labels.get(label, "")))
        if job in uids and controllers in ([], [uids[job]]):
            index = str(metadata["name"]).rpartition("-")[2]
            ours = {JOB_LABEL: job.name, ROLE_LABEL: role, INDEX_LABEL: index, **labels}
            owner = [{"uid": uids[job], "controller": True}]
            return {**pod, "metadata": {**metadata, "labels": ours, "ownerReferences": owner}}
    return pod


def has_clusters(found: Iterable[Found]) -> bool:
    """Whether there is a RayCluster, so that the existing ones have to be read."""
    return any(one.is_of(meta.RAYCLUSTERS) for one in found)


def found_in(files: Iterable[tuple[str, str]]) -> tuple[Found, ...]:
    """The objects in files of (name, text) to submit, at least one; raises InputError."""
    files = tuple(files)
    found = [one for name, text in files for one in objects_in(name, text)]
    submitted = tuple(one for one in found if any(map(one.is_of, SUBMITTED)))
    for one in submitted:
        _reject_other_than_json(one.manifest, one.where)
    if not submitted:
        kinds = ", ".join(sorted({_kind(one) for one in found}))
        only = f", only {kinds}" if kinds else ""
        raise InputError(f"{', '.join(name for name, _ in files)}: no TrainingJob or RayCluster to submit{only}")
    return submitted


def _reject_other_than_json(value: object, where: str, path: str = "") -> None:
    """Raise InputError for what YAML has and an API server cannot be sent: sets, bytes, keys that are no strings, huge numbers."""
    is_json = True
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InputError(f"{where}: {path or 'the object'} has a key that is not a string")
            _reject_other_than_json(inner, where, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _reject_other_than_json(inner, where, f"{path}[{index}]")
    elif isinstance(value, int):
        is_json = abs(value) <= MAX_INT64
    elif isinstance(value, float):
        is_json = math.isfinite(value)
    else:
        is_json = isinstance(value, str | NoneType)
    if not is_json:
        raise InputError(f"{where}: {path} is not a value that JSON has, or too large")


def read_submitted(found: Iterable[Found], snapshot: PlanInputs, namespace: str, *, now: datetime) -> Submission:
    """Parse the objects as if created now; those without a namespace get `namespace`; raises InputError."""
    placed = [Found(_as_submitted(one.manifest, namespace, now), one.where) for one in found]
    _reject_duplicates(placed)
    jobs, left = {job.key for job in snapshot.jobs}, MAX_PODS
    objects: list[TrainingJob | NewRayCluster] = []
    for one in placed:
        if one.is_of(meta.TRAININGJOBS):
            objects.append(_new_job(one, jobs))
            continue
        cluster = _new_cluster(one, snapshot.clusters, left)
        left -= sum(len(each.pods) for each in cluster.pods)
        objects.append(cluster)
    return Submission(tuple(objects))


def _new_job(one: Found, existing: Container[Key]) -> TrainingJob:
    job = _view(one, TrainingJob.parse)
    _reject_existing(one, job.key, existing)
    if broken := violations(job):
        raise InputError(f"{one.where} ({one.name}): {'; '.join(str(violation) for violation in broken)}")
    return with_placeholder_uid(job)


def _new_cluster(one: Found, existing: Container[Key], max_pods: int) -> NewRayCluster:
    """The RayCluster with its pods; its faults are in the words of the controller's validation."""
    metadata = one.manifest["metadata"]
    key = Key(metadata["namespace"], metadata["name"])
    _reject_existing(one, key, existing)
    named = replace(one, manifest={**one.manifest, "metadata": {**metadata, "uid": placeholder_uid(key)}})
    try:
        return _view(named, lambda manifest: _parsed_cluster(manifest, max_pods))
    except RejectedError as error:
        raise InputError(f"{one.where} ({one.name}): {error}") from error


def _parsed_cluster(manifest: Manifest, max_pods: int) -> NewRayCluster:
    try:
        return new_raycluster(manifest, max_pods)
    except ValidationError as error:
        raise RejectedError("; ".join(map(str, faults_of(error)))) from error


def _reject_existing(one: Found, key: Key, existing: Container[Key]) -> None:
    if key in existing:
        raise InputError(f"{one.where}: {one.name} exists already; submit it under another name")


def _as_submitted(manifest: Manifest, namespace: str, now: datetime) -> Manifest:
    """Drop status and server fields, as in a newly created object."""
    metadata = {name: value for name, value in manifest["metadata"].items() if name not in _OF_THE_SERVER}
    annotations = {
        name: value for name, value in (metadata.get("annotations") or {}).items() if name != SHARING_ANNOTATION
    }
    named = {
        **metadata,
        "annotations": annotations,
        "namespace": metadata.get("namespace") or namespace,
        "creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),  # newest of all, as after creation
    }
    return {**{name: value for name, value in manifest.items() if name != "status"}, "metadata": named}


def _skipped(found: Iterable[Found]) -> Iterator[str]:
    kinds = Counter(_kind(one) for one in found if not any(map(one.is_of, READ)))
    for kind, count in sorted(kinds.items()):
        yield f"skipped {count} {kind}: a plan does not depend on it"


def _kind(one: Found) -> str:
    return f"{one.manifest['kind']} ({one.manifest['apiVersion']})"


def _reject_duplicates(found: Iterable[Found]) -> None:
    first: dict[tuple[str, str], Found] = {}
    for one in found:
        if any(map(one.is_of, _NAMED)) and (before := first.setdefault((one.name, _kind(one)), one)) is not one:
            raise InputError(f"{one.where}: {one.name} is defined twice, first in {before.where}")


# --- objects in text -------------------------------------------------------------------------------------------------


MAX_DEPTH: Final = 100
"""Levels of a document; a pod template has about fifteen. libyaml's loader is recursive: 50,000 overflow the stack."""


class _Loader(yaml.CSafeLoader):
    """Leaves timestamps as they are written, quoted or not, and rejects deep nesting while it loads.

    libyaml calls the resolver when it enters and leaves a node, so that the text is parsed once.
    """

    _depth = 0

    def descend_resolver(self, current_node: yaml.Node | None, current_index: object) -> None:
        """Enter a node; raises MarkedYAMLError beyond `MAX_DEPTH`."""
        self._depth += 1
        if self._depth > MAX_DEPTH + 1 and current_node is not None:  # the innermost values are nodes, too
            mark = current_node.start_mark
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=mark)
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        """Leave it."""
        self._depth -= 1
        super().ascend_resolver()


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def objects_in(name: str, text: str) -> Iterator[Found]:
    """Yield every object in one file, with lists expanded; raises InputError."""
    try:
        documents = list(yaml.load_all(text, _Loader))
    except yaml.YAMLError as error:
        raise InputError(f"{name}: {_yaml_error_text(error)}") from error
    except (ValueError, RecursionError) as error:  # such as an impossible number, or deeply nested brackets
        raise InputError(f"{name}: cannot be parsed as YAML: {error}") from error
    for number, document in enumerate(documents, 1):
        if document is not None:
            yield from _objects_in(document, f"{name}: document {number}")


def _yaml_error_text(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


def _objects_in(document: Any, where: str) -> Iterator[Found]:
    """The Kubernetes objects of a document, which may be a list of them; raises InputError for anything else."""
    if isinstance(document, list):
        for number, item in enumerate(document, 1):
            yield from _objects_in(item, f"{where}, item {number}")
        return
    if not isinstance(document, dict):
        raise InputError(f"{where}: this is {_described(document)}, not a Kubernetes object")
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise InputError(f"{where}: {field} is missing")
    if _is_list(document):
        yield from _items(document, where)
        return
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise InputError(f"{where} ({document['kind']}): metadata.name is missing")
    if not isinstance(metadata.get("namespace") or "", str):
        raise InputError(f"{where} ({document['kind']}): metadata.namespace is not a string")
    if not isinstance(metadata.get("annotations") or {}, dict):
        raise InputError(f"{where} ({document['kind']}): metadata.annotations is not a mapping")
    yield Found(document, where)


def _is_list(document: Manifest) -> bool:
    return document["kind"].endswith("List") and ("items" in document or document["kind"] == "List")


def _items(document: Manifest, where: str) -> Iterator[Found]:
    """The items of a list; those of a `PodList` as the API sends it have neither kind nor apiVersion of their own."""
    items = document.get("items") or ()
    if not isinstance(items, list | tuple):
        raise InputError(f"{where} ({document['kind']}): items is {_described(items)}, not a list")
    kind = document["kind"].removesuffix("List")
    inherited = {"apiVersion": document["apiVersion"], "kind": kind} if kind else {}
    for number, item in enumerate(items, 1):
        yield from _objects_in({**inherited, **item} if isinstance(item, dict) else item, f"{where}, item {number}")


def _described(value: Any) -> str:
    names = {str: "text", int: "a number", float: "a number", bool: "true or false", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


# --- typed -----------------------------------------------------------------------------------------------------------


def _views(found: Iterable[Found], resource: Resource, view: Callable[[Manifest], T]) -> tuple[T, ...]:
    return tuple(_view(one, view) for one in found if one.is_of(resource))


def _view(one: Found, view: Callable[[Manifest], T]) -> T:
    try:
        return view(one.manifest)
    except ValidationError as error:
        raise InputError(f"{one.where} ({one.name}): {faults_of(error)[0]!s}") from error
    except msgspec.ValidationError as error:
        raise InputError(f"{one.where} ({one.name}): {_msgspec_error_text(error)}") from error
    except QuantityError as error:
        field = path_of(one.manifest, error.text)
        raise InputError(f"{one.where} ({one.name}): {field}{error}") from error


def _msgspec_error_text(error: msgspec.ValidationError) -> str:
    """Rewrite `Expected `str`, got `int` - at `$.spec.nodeName`` with the field in front."""
    message, _, path = str(error).partition(" - at ")
    field = path.strip("`").removeprefix("$.")
    return f"{field}: {message.replace('`', '')}" if field else message.replace("`", "")


def path_of(value: Any, text: object, path: str = "") -> str:
    """Path in the object where that text stands, as `spec.containers[0]: `; empty if not found."""
    children: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        children = ((f"{path}.{name}" if path else str(name), child) for name, child in value.items())
    elif isinstance(value, list):
        children = ((f"{path}[{number}]", child) for number, child in enumerate(value))
    elif str(value) == str(text):
        return f"{path}: "
    return next((found for where, child in children if (found := path_of(child, text, where))), "")
