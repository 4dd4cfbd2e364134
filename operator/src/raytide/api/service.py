"""View of a service of a RayCluster.

Decodes a service's JSON into a small frozen view: owner, labels, address, ports, and the selector of a head service. It
keeps nothing else, because the operator creates services once and never updates them (RC:HS-1). Created by the informer, read by plan and status (RC
§1.5 endpoints, head.serviceIP).
"""

from collections.abc import Mapping
from heapq import nsmallest
from sys import intern
from typing import Any, Final

import msgspec

from raytide.api import constants
from raytide.api.meta import Key
from raytide.api.object_metadata import Metadata

MAX_SELECTOR: Final = 8
"""More labels than RC:HS-3 names, so that a selector that was edited is recognized."""


MAX_SERVICE_PORTS: Final = 100
"""Named ports; a head service of Raytide has one for each port of the head's container."""


class ServicePort(msgspec.Struct, frozen=True, gc=False):
    """One port: `endpoint` is what status shows, node port before target port (RC §1.5)."""

    name: str
    endpoint: str


class ServiceView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One service of a RayCluster."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    owner_uid: str = ""
    cluster: str = ""
    """The RayCluster its labels name, as its head service or as its headless worker service."""
    is_headless_worker_service: bool = False
    """Whether it has the label by which the headless worker service is looked up (RC:HL-1)."""
    node_type: str = ""
    identifier: str = ""
    selector: tuple[tuple[str, str], ...] = ()
    """Of a head service: the labels that it selects by, at most `MAX_SELECTOR`."""
    cluster_ip: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    ports: tuple[ServicePort, ...] = ()

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)

    @property
    def cluster_key(self) -> Key:
        """The RayCluster that the service's labels name."""
        return Key(self.namespace, self.cluster)

    @property
    def is_terminating(self) -> bool:
        """Whether its deletion was requested."""
        return bool(self.deletion_timestamp)

    @property
    def is_head_service(self) -> bool:
        """Whether it has the labels by which the head service is looked up (RC:HS-1)."""
        return self.node_type == constants.HEAD and self.identifier == constants.head_identifier(self.cluster)

    def marked_terminating(self, at: str) -> "ServiceView":
        """The same service marked as terminating."""
        return self if self.deletion_timestamp else msgspec.structs.replace(self, deletion_timestamp=at)


class _Port(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = None
    port: int = 0
    node_port: int | None = None
    target_port: int | str | None = None

    @property
    def endpoint(self) -> str:
        # The API server defaults targetPort to port; a manifest not yet created has no targetPort.
        return str(self.node_port or self.target_port or self.port)


class _Spec(msgspec.Struct, gc=False):
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    ports: list[_Port] | None = None
    selector: dict[str, str] | None = None


class ServiceDocument(msgspec.Struct, gc=False):
    """A service's JSON as a decoder type."""

    metadata: Metadata
    spec: _Spec | None = None


_decoder = msgspec.json.Decoder(ServiceDocument)


def decode_service(document: bytes | msgspec.Raw) -> ServiceView:
    """The view of one service's JSON; raises msgspec.MsgspecError when it is not a service."""
    return view_of(_decoder.decode(document))


def service_from_manifest(manifest: Mapping[str, Any]) -> ServiceView:
    """The view of a service given as an object."""
    return view_of(msgspec.convert(manifest, ServiceDocument))


def view_of(service: ServiceDocument) -> ServiceView:
    """Reduce a decoded service to its view; unnamed ports are left out (RC §1.5)."""
    meta, spec = service.metadata, service.spec or _Spec()
    labels, named = meta.labels or {}, [port for port in spec.ports or () if port.name]
    headless_of = labels.get(constants.HEADLESS_WORKER_SERVICE_LABEL, "")
    cluster = labels.get(constants.CLUSTER_LABEL) or headless_of
    view = ServiceView(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        owner_uid=meta.controller_uid,
        cluster=intern(cluster),
        is_headless_worker_service=bool(headless_of) and headless_of == cluster,
        node_type=intern(labels.get(constants.NODE_TYPE_LABEL, "")),
        identifier=labels.get(constants.IDENTIFIER_LABEL, ""),
        cluster_ip=spec.cluster_ip or "",
        creation_timestamp=meta.creation_timestamp or "",
        deletion_timestamp=meta.deletion_timestamp or "",
        ports=tuple(ServicePort(intern(p.name), p.endpoint) for p in named[:MAX_SERVICE_PORTS] if p.name),
    )
    if not view.is_head_service:
        return view
    selector = nsmallest(MAX_SELECTOR, (spec.selector or {}).items())
    return msgspec.structs.replace(view, selector=tuple((intern(label), intern(value)) for label, value in selector))
