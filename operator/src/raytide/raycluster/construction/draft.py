"""What does a pod look like while it is being built, and what may a step look at?

`Site` is whose pod it is and under which settings; `Draft` is the pod so far, taken apart into what the steps of RC §3
add to. Both are frozen: a step returns a new draft and never changes what the user wrote. The lists of steps stand in
pods.py; a feature that comes later is one more step there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from raytide.api import names
from raytide.api.config import PodConfig
from raytide.api.meta import Manifest
from raytide.api.raycluster import GroupSpec, RayCluster, WorkerGroupSpec
from raytide.raycluster.objects import head_service_name, service_fqdn


@dataclass(frozen=True, slots=True)
class Site:
    """Whose pod is built: the cluster, its head or one of its worker groups, and the settings."""

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
        return names.HEAD if self.is_head else names.WORKER

    @property
    def group_name(self) -> str:
        """The group as Ray knows it: `headgroup`, or the worker group's name."""
        return self.group.group_name if isinstance(self.group, WorkerGroupSpec) else names.HEAD_GROUP

    @property
    def head_service(self) -> str:
        """The head service's name."""
        return head_service_name(self.cluster)

    @property
    def head_fqdn(self) -> str:
        """The full name under which workers find the head."""
        return service_fqdn(self.cluster, self.config)

    @property
    def gcs_port(self) -> str:
        """Where the head's GCS listens; text, because it is passed on as the user wrote it (RC:RSP-3)."""
        return self.cluster.spec.head_group_spec.ray_start_params.get("port") or str(names.GCS_SERVER_PORT)

    @property
    def gcs_address(self) -> str:
        """The GCS as workers see it."""
        return f"{self.head_fqdn}:{self.gcs_port}"

    @property
    def is_ray_service(self) -> bool:
        """Whether a RayService made this cluster (RC §3.3, §3.6)."""
        return self.cluster.metadata.labels.get(names.ORIGINATED_FROM_CRD_LABEL) == "RayService"

    @property
    def shell(self) -> list[str]:
        """The command that runs one string (RC:CMD-4)."""
        return ["/bin/bash", "-cl" if self.config.is_login_shell else "-c", "--"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A pod so far. `ray` is the Ray container: the first of the template, by position (RC §3)."""

    ray_start_params: Mapping[str, str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    ray: Manifest
    sidecars: tuple[Manifest, ...]
    init_containers: tuple[Manifest, ...]
    volumes: tuple[Manifest, ...]
    rest: Manifest
    """The other fields of the pod spec, untouched (RC §3.12)."""


Step: TypeAlias = Callable[[Draft, Site], Draft]


def start_draft(site: Site) -> Draft:
    """The user's template, taken apart; validation has seen to it that there is a container (RC:V-3, RC:V-7)."""
    metadata: Manifest = site.group.template.get("metadata") or {}
    spec: Manifest = dict(site.group.template.get("spec") or {})
    ray, *sidecars = spec.pop("containers")
    return Draft(
        ray_start_params=dict(site.group.ray_start_params),
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
        finalizers=tuple(metadata.get("finalizers") or ()),
        ray=ray,
        sidecars=tuple(sidecars),
        init_containers=tuple(spec.pop("initContainers", None) or ()),
        volumes=tuple(spec.pop("volumes", None) or ()),
        rest=spec,
    )


def listed(manifest: Mapping[str, Any], key: str) -> list[Any]:
    """The list under `key`, or an empty one when it is absent or null."""
    return list(manifest.get(key) or ())


def has_named(entries: list[Manifest], name: str) -> bool:
    """Whether one of the entries has that name."""
    return any(entry.get("name") == name for entry in entries)
