"""Input and intermediate state of Ray pod construction.

`PodContext` is the input of every step: cluster, group and settings. `PodBuilder` is the pod under construction, split into the
parts that the steps of RC §3 extend. Both are frozen: a step returns a new draft and never modifies the user's
template. pods.py contains the lists of steps; a new feature is one more step there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from raytide.api import constants
from raytide.api.config import PodConfig
from raytide.api.meta import Manifest
from raytide.api.raycluster import GroupSpec, RayCluster, WorkerGroupSpec
from raytide.raycluster.manifests.services import head_service_name, service_fqdn


@dataclass(frozen=True, slots=True)
class PodContext:
    """The pod to build: the cluster, its head or one of its worker groups, and the settings."""

    cluster: RayCluster
    group: GroupSpec
    config: PodConfig

    @property
    def is_head(self) -> bool:
        """Whether this is the head pod."""
        return not isinstance(self.group, WorkerGroupSpec)

    @property
    def node_type(self) -> str:
        """`head` or `worker`."""
        return constants.HEAD if self.is_head else constants.WORKER

    @property
    def group_name(self) -> str:
        """The group's name in Ray: `headgroup`, or the worker group's name."""
        return self.group.group_name if isinstance(self.group, WorkerGroupSpec) else constants.HEAD_GROUP

    @property
    def head_service(self) -> str:
        """The head service's name."""
        return head_service_name(self.cluster)

    @property
    def head_fqdn(self) -> str:
        """The head service's full DNS name, under which workers reach the head."""
        return service_fqdn(self.cluster, self.config)

    @property
    def gcs_port(self) -> str:
        """The port of the head's GCS; a string, because it is passed on as the user wrote it (RC:RSP-3)."""
        return self.cluster.spec.head_group_spec.ray_start_params.get("port") or str(constants.GCS_SERVER_PORT)

    @property
    def gcs_address(self) -> str:
        """The address of the GCS for workers."""
        return f"{self.head_fqdn}:{self.gcs_port}"

    @property
    def is_ray_service(self) -> bool:
        """Whether a RayService created this cluster (RC §3.3, §3.6)."""
        return self.cluster.metadata.labels.get(constants.ORIGINATED_FROM_CRD_LABEL) == "RayService"

    @property
    def shell(self) -> list[str]:
        """The container command that runs a script given as the only argument (RC:CMD-4)."""
        return ["/bin/bash", "-cl" if self.config.is_login_shell else "-c", "--"]


@dataclass(frozen=True, slots=True)
class PodBuilder:
    """A pod under construction. `ray` is the Ray container: the first of the template (RC §3)."""

    ray_start_params: Mapping[str, str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    ray: Manifest
    sidecars: tuple[Manifest, ...]
    init_containers: tuple[Manifest, ...]
    volumes: tuple[Manifest, ...]
    other_fields: Manifest
    """The other fields of the pod spec, untouched (RC §3.12)."""


Step: TypeAlias = Callable[[PodBuilder, PodContext], PodBuilder]


def start_builder(context: PodContext) -> PodBuilder:
    """The user's template as a draft; validation guarantees at least one container (RC:V-3, RC:V-7)."""
    metadata: Manifest = context.group.template.get("metadata") or {}
    spec: Manifest = dict(context.group.template.get("spec") or {})
    ray, *sidecars = spec.pop("containers")
    return PodBuilder(
        ray_start_params=dict(context.group.ray_start_params),
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
        finalizers=tuple(metadata.get("finalizers") or ()),
        ray=ray,
        sidecars=tuple(sidecars),
        init_containers=tuple(spec.pop("initContainers", None) or ()),
        volumes=tuple(spec.pop("volumes", None) or ()),
        other_fields=spec,
    )


def listed(manifest: Mapping[str, Any], key: str) -> list[Any]:
    """The list under `key`, or an empty one when it is absent or null."""
    return list(manifest.get(key) or ())


def has_named(entries: list[Manifest], name: str) -> bool:
    """Whether one of the entries has that name."""
    return any(entry.get("name") == name for entry in entries)
