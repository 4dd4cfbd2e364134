"""What do the controllers look at in a pod?

Takes the stored JSON of a pod and reads the few fields that scheduling and pod collection need, skipping the rest, which
costs a tenth of decoding all of it. A pod whose fields have types nobody expects is read as far as that goes, with the
fault as a text. Pure; read once per change through `Noted.pod`.
"""

from typing import Any

import msgspec

Json = dict[str, Any]


class ContainerSeen(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """A container's wishes."""

    resources: Json | None = None
    restart_policy: str | None = None


class SpecSeen(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What decides where a pod goes."""

    node_name: str | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[Any] | None = None
    priority: int | None = None
    node_selector: Json | None = None
    affinity: Json | None = None
    tolerations: list[Json] | None = None
    overhead: Json | None = None
    containers: list[ContainerSeen] | None = None
    init_containers: list[ContainerSeen] | None = None


class StatusSeen(msgspec.Struct, frozen=True, gc=False):
    """How far it has come."""

    phase: str | None = None


class MetadataSeen(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Since when it exists."""

    creation_timestamp: str = ""


class PodSeen(msgspec.Struct, frozen=True):
    """A pod as the controllers see it."""

    metadata: MetadataSeen = MetadataSeen()
    spec: SpecSeen = SpecSeen()
    status: StatusSeen = StatusSeen()
    fault: str = ""
    """Why its fields could not be read."""

    @property
    def has_ended(self) -> bool:
        """Whether it will never run again, so that it takes no room."""
        return self.status.phase in {"Succeeded", "Failed"}

    def raw_spec(self) -> Json:
        """The fields that decide where it goes, as they were written."""
        found: Json = msgspec.to_builtins(self.spec)
        return found


class _Bound(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class _BoundPod(msgspec.Struct, frozen=True):
    spec: _Bound = _Bound()


_decode = msgspec.json.Decoder(PodSeen).decode
_decode_bound = msgspec.json.Decoder(_BoundPod).decode


def read_pod(raw: bytes) -> PodSeen:
    """Never raises for a stored pod."""
    try:
        return _decode(raw)
    except msgspec.ValidationError as error:
        fault = str(error)
    try:
        return PodSeen(spec=SpecSeen(node_name=_decode_bound(raw).spec.node_name), fault=fault)
    except msgspec.ValidationError:
        return PodSeen(fault=fault)
