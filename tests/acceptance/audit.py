"""Writes that the API server accepted, in their order and with their users, from its audit log.

Reads an audit log (one JSON event a line, levels as `POLICY` asks for them) into plain steps: pods born and doomed,
orders given to RayClusters, leases taken, writes made. The order is that of etcd: the resourceVersion in each response,
which is one count for the whole cluster, so that two steps are never "at about the same time". Read by checks.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources: [{group: "", resources: [events]}, {group: events.k8s.io, resources: [events]}]
- level: RequestResponse
  resources:
  - {group: "", resources: [pods]}
  - {group: ray.io, resources: [rayclusters]}
  - {group: paddlepaddle.org, resources: [trainingjobs]}
  - {group: coordination.k8s.io, resources: [leases]}
- level: Metadata
  resources: [{group: "", resources: [pods/status, pods/binding]}]
- level: RequestResponse
  resources:
  - {group: ray.io, resources: [rayclusters/status]}
  - {group: "", resources: [services]}
- level: None
"""
"""Whole objects of what is judged by its contents, nothing of what is not judged."""


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct, gc=False):
    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class _Ref(msgspec.Struct, gc=False):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _User(msgspec.Struct, gc=False):
    username: str = ""


class _Code(msgspec.Struct, gc=False):
    code: int = 0


class _Event(msgspec.Struct, gc=False, rename="camel"):
    verb: str
    stage: str
    request_received_timestamp: str
    stage_timestamp: str
    user: _User = msgspec.field(default_factory=_User)
    user_agent: str = ""
    object_ref: _Ref = msgspec.field(default_factory=_Ref)
    response_status: _Code = msgspec.field(default_factory=_Code)
    response_object: _Object | None = None
    request_object: msgspec.Raw = msgspec.Raw(b"null")
    """An object, or a JSON patch."""


class _Group(msgspec.Struct, gc=False, rename="camel"):
    group_name: str
    replicas: int = 0
    scale_strategy: dict[str, Any] | None = None


class _ClusterSpec(msgspec.Struct, gc=False, rename="camel"):
    worker_group_specs: list[_Group] = []


class _TrainerSpec(msgspec.Struct, gc=False):
    replicas: int | None = None


class _JobSpec(msgspec.Struct, gc=False):
    trainer: _TrainerSpec = msgspec.field(default_factory=_TrainerSpec)


class _LeaseSpec(msgspec.Struct, gc=False, rename="camel"):
    holder_identity: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One accepted write: where etcd put it, between which moments of the server's clock, and whose it was."""

    version: int
    received_s: float
    answered_s: float
    user: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Order(Step):
    """A RayCluster's spec was written: what is wanted of each group from here on."""

    cluster: str
    """namespace/name."""
    targets: dict[str, int] = field(default_factory=dict)
    victims: frozenset[str] = frozenset()
    is_ended: bool = False
    """The cluster itself is being deleted."""


@dataclass(frozen=True, slots=True)
class Sized(Step):
    """A TrainingJob was written: how many trainers are wanted from here on; None if it is not set."""

    job: str
    """namespace/name."""
    trainers: int | None


@dataclass(frozen=True, slots=True)
class Created(Step):
    """A pod was created."""

    cluster: str
    group: str
    pod: str


@dataclass(frozen=True, slots=True)
class Doomed(Step):
    """A pod began to terminate, or was gone at once."""

    pod: str


@dataclass(frozen=True, slots=True)
class Held(Step):
    """A lease was written: its holder from here on; no holder if empty."""

    lease: str
    holder: str


@dataclass(frozen=True, slots=True)
class Wrote(Step):
    """Any other accepted write of something that only a leader may write."""

    what: str


class Seen(NamedTuple):
    """What a watch saw of pods (namespace/name): the version at which each was born, and began to terminate."""

    created: Mapping[str, int] = {}
    doomed: Mapping[str, int] = {}


NOTHING_SEEN = Seen()


def read(path: Path, seen: Seen = NOTHING_SEEN) -> list[Step]:
    """Every accepted write in etcd's order."""
    decode = msgspec.json.Decoder(_Event).decode
    with path.open("rb") as lines:
        return steps((decode(line) for line in lines if line.endswith(b"}\n")), seen)


def steps(events: Iterable[_Event], seen: Seen = NOTHING_SEEN) -> list[Step]:
    """Accepted writes in etcd's order; a delete counts once, when the pod began to terminate.

    A client that dies while it is answered leaves a 5xx in the log though etcd may have done it: `seen` tells.
    """
    found = [step for event in events for step in (_steps(event) if _is_accepted(event) else _doubtful(event, seen))]
    return sorted(found, key=lambda step: step.version)


def _is_accepted(event: _Event) -> bool:
    return event.stage == "ResponseComplete" and 200 <= event.response_status.code < 300


def _steps(event: _Event) -> Iterator[Step]:
    obj, ref = event.response_object, event.object_ref
    if obj is None or not obj.metadata.resource_version.isdigit():
        return
    meta = obj.metadata
    base = (
        int(meta.resource_version),
        seconds(event.request_received_timestamp),
        seconds(event.stage_timestamp),
        event.user.username,
        meta.namespace,
    )
    key = f"{meta.namespace}/{meta.name}"
    match ref.resource, ref.subresource, event.verb:
        case "pods", "", "create":
            labels = meta.labels
            yield Created(
                *base, f"{meta.namespace}/{labels.get('ray.io/cluster', '')}", labels.get("ray.io/group", ""), key
            )
        case "pods", "", "delete":
            yield Doomed(*base, key)
        case "rayclusters", "", "create" | "update" | "patch" | "delete":
            yield _order(base, key, obj)
        case "trainingjobs", "", "create" | "update" | "patch":
            yield Sized(*base, key, msgspec.json.decode(obj.spec, type=_JobSpec).trainer.replicas)
        case "leases", "", "create" | "update" | "patch":
            yield Held(*base, key, msgspec.json.decode(obj.spec, type=_LeaseSpec).holder_identity or "")
        case ("rayclusters", "status", _) | ("services", "", _):
            yield Wrote(*base, f"{event.verb} {ref.resource}/{ref.subresource} {key}".replace("/ ", " "))
        case _:
            return


def _doubtful(event: _Event, seen: Seen) -> Iterator[Step]:
    ref = event.object_ref
    key = f"{ref.namespace}/{ref.name}"
    if event.response_status.code < 500 or (ref.resource, ref.subresource) != ("pods", ""):
        return
    times = seconds(event.request_received_timestamp), seconds(event.stage_timestamp)
    rest = *times, event.user.username, ref.namespace
    if event.verb == "create" and key in seen.created:
        labels = msgspec.json.decode(event.request_object, type=_Object).metadata.labels
        cluster = f"{ref.namespace}/{labels.get('ray.io/cluster', '')}"
        yield Created(seen.created[key], *rest, cluster, labels.get("ray.io/group", ""), key)
    elif event.verb == "delete" and key in seen.doomed:
        yield Doomed(seen.doomed[key], *rest, key)


def _order(base: tuple[int, float, float, str, str], key: str, obj: _Object) -> Order:
    groups = msgspec.json.decode(obj.spec, type=_ClusterSpec).worker_group_specs
    victims = {name for group in groups for name in (group.scale_strategy or {}).get("workersToDelete") or ()}
    return Order(
        *base,
        cluster=key,
        targets={group.group_name: group.replicas for group in groups},
        victims=frozenset(f"{key.partition('/')[0]}/{name}" for name in victims),
        is_ended=obj.metadata.deletion_timestamp is not None,
    )


def seconds(text: str) -> float:
    """A moment of the server's clock."""
    return datetime.fromisoformat(text).timestamp()
