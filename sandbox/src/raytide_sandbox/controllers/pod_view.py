"""Partial decoding of pods for the controllers.

Takes the stored JSON of a pod and decodes only the fields that scheduling and pod garbage collection need, which costs
a tenth of decoding all of it. A pod with fields of unexpected types is decoded as far as possible, with the error as a
text. Pure; called once per change through `Noted.pod`.
"""

from typing import Any

import msgspec

Json = dict[str, Any]


class ContainerSeen(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """The resources of a container, and whether an init container is restartable."""

    resources: Json | None = None
    restart_policy: str | None = None


class ClaimSeen(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """The claim that a volume refers to."""

    claim_name: str = ""


class VolumeSeen(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """A volume, if it is a claim."""

    persistent_volume_claim: ClaimSeen | None = None


class SpecSeen(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The fields that decide where a pod is placed."""

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
    volumes: list[VolumeSeen] | None = None


class StatusSeen(msgspec.Struct, frozen=True, gc=False):
    """The phase of a pod."""

    phase: str | None = None


class MetadataSeen(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The creation time of a pod."""

    creation_timestamp: str = ""


class PodSeen(msgspec.Struct, frozen=True):
    """The fields of a pod that the controllers read."""

    metadata: MetadataSeen = MetadataSeen()
    spec: SpecSeen = SpecSeen()
    status: StatusSeen = StatusSeen()
    fault: str = ""
    """Why its fields could not be decoded; empty if they could."""

    @property
    def has_ended(self) -> bool:
        """True when the pod is Succeeded or Failed, so that it uses no capacity."""
        return self.status.phase in {"Succeeded", "Failed"}

    def raw_spec(self) -> Json:
        """The scheduling fields as plain JSON."""
        found: Json = msgspec.to_builtins(self.spec)
        return found


class _Bound(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class _BoundPod(msgspec.Struct, frozen=True):
    spec: _Bound = _Bound()


_decode = msgspec.json.Decoder(PodSeen).decode
_decode_bound = msgspec.json.Decoder(_BoundPod).decode


def read_pod(raw: bytes) -> PodSeen:
    """Decode a stored pod; never raises for one."""
    try:
        return _decode(raw)
    except msgspec.ValidationError as error:
        fault = str(error)
    try:
        return PodSeen(spec=SpecSeen(node_name=_decode_bound(raw).spec.node_name), fault=fault)
    except msgspec.ValidationError:
        return PodSeen(fault=fault)
