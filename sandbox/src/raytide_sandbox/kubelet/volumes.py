"""Plan of a pod's volumes and of its containers' mounts.

Takes the pod's volumes and the ConfigMaps, Secrets and tokens they refer to; returns per volume an empty directory, a
host path, or the content and mode of every file, and per container the list of mounts. A missing reference that is not
optional raises `ConfigMissingError` with the kubelet's message (FailedMount), an unsupported volume type raises `PodSpecError`.
Pure; volumefiles.py writes the plan, which is computed again at every refresh.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from raytide.api.quantity import QuantityError, to_bytes
from raytide_sandbox.container_runtime.interface import MemoryVolume, Mount
from raytide_sandbox.kubelet.env import (
    CLAIM,
    CONFIG_MAP,
    SECRET,
    VOLUME,
    ConfigMissingError,
    PodSurroundings,
    Source,
    Sources,
    decode_entries,
    expand,
    field_value,
    resource_value,
)
from raytide_sandbox.kubelet.podspec import ContainerSpec, Manifest, PodSpec, PodSpecError, integer, mappings, text

DEFAULT_MODE: Final = 0o644
_DEFAULT_TOKEN_S: Final = 3600
_MIN_TOKEN_S: Final = 600


@dataclass(frozen=True, slots=True)
class FileContent:
    """One file of a volume."""

    content: bytes
    mode: int = DEFAULT_MODE


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A service-account token that a volume needs; the lifetime is in seconds."""

    audience: str
    lifetime_s: int


Files = Mapping[str, FileContent]
Tokens = Mapping[TokenRequest, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyVolume:
    """An emptyDir: empty at first, deleted with the pod."""

    name: str
    is_memory: bool = False
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVolume:
    """A hostPath on this machine; `mode` is that of a directory which is created."""

    name: str
    path: str
    type: str = ""
    mode: int = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesVolume:
    """Files made from API objects: configMap, secret, downwardAPI or projected."""

    name: str
    files: Files = field(default_factory=dict)


Volume = EmptyVolume | HostVolume | FilesVolume


# --- references ----------------------------------------------------------------------------------------------------
def volume_references(pod: PodSpec) -> frozenset[Source]:
    """The ConfigMaps, Secrets and claims that the volumes refer to."""
    wanted = set()
    for raw in pod.volumes:
        if isinstance(raw.get("persistentVolumeClaim"), Mapping):
            wanted.add((CLAIM, text(raw["persistentVolumeClaim"].get("claimName"))))
        for source in _sources_of(raw):
            if isinstance(source.get("configMap"), Mapping):
                wanted.add((CONFIG_MAP, text(source["configMap"].get("name"))))
            if isinstance(source.get("secret"), Mapping):
                named = source["secret"]
                wanted.add((SECRET, text(named.get("secretName") or named.get("name"))))
    return frozenset(wanted)


def bound_volumes(sources: Sources) -> frozenset[Source]:
    """The PersistentVolumes that the claims among the sources are bound to."""
    specs = (source.get("spec") or {} for (kind, _), source in sources.items() if kind == CLAIM and source is not None)
    return frozenset((VOLUME, text(spec["volumeName"])) for spec in specs if spec.get("volumeName"))


def token_requests(pod: PodSpec) -> frozenset[TokenRequest]:
    """The service-account tokens that the volumes project."""
    return frozenset(
        _token_request(source["serviceAccountToken"])
        for raw in pod.volumes
        for source in _sources_of(raw)
        if isinstance(source.get("serviceAccountToken"), Mapping)
    )


def _sources_of(raw: Manifest) -> tuple[Manifest, ...]:
    projected = raw.get("projected")
    if isinstance(projected, Mapping):
        return mappings(projected.get("sources"), f"volume {text(raw.get('name'))}: projected.sources")
    return (raw,)


def _token_request(raw: Manifest) -> TokenRequest:
    lifetime_s = max(_MIN_TOKEN_S, integer(raw.get("expirationSeconds"), _DEFAULT_TOKEN_S))
    return TokenRequest(audience=text(raw.get("audience")), lifetime_s=lifetime_s)


# --- contents ------------------------------------------------------------------------------------------------------
def plan_volumes(pod: PodSpec, surroundings: PodSurroundings, sources: Sources, tokens: Tokens) -> tuple[Volume, ...]:
    """Plan every volume of the pod; raises ConfigMissingError and PodSpecError."""
    return tuple(_plan_volume(raw, _Context(pod, surroundings, sources, tokens)) for raw in pod.volumes)


@dataclass(frozen=True, slots=True)
class _Context:
    pod: PodSpec
    surroundings: PodSurroundings
    sources: Sources
    tokens: Tokens


def _plan_volume(raw: Manifest, context: _Context) -> Volume:
    name = text(raw.get("name"))
    kinds = [kind for kind, value in raw.items() if kind != "name" and value is not None]
    if not kinds or kinds == ["emptyDir"]:
        return _empty_volume(name, raw.get("emptyDir") or {})
    kind = kinds[0]
    if kind == "hostPath":
        host = raw["hostPath"]
        return HostVolume(name=name, path=text(host.get("path")), type=text(host.get("type")))
    if kind == "persistentVolumeClaim":
        return _claimed_volume(name, text(raw[kind].get("claimName")), context)
    if kind not in _PLANNERS and kind != "projected":
        raise PodSpecError(f'volume "{name}": {kind} is not available here')
    body = raw[kind]
    default_mode = integer(body.get("defaultMode"), DEFAULT_MODE)
    if kind != "projected":
        return FilesVolume(name=name, files=_PLANNERS[kind](body, default_mode, context))
    files: dict[str, FileContent] = {}
    for source in _sources_of(raw):
        for part, content in source.items():
            if part not in _PLANNERS:
                raise PodSpecError(f'volume "{name}": projected {part} is not available here')
            files |= _PLANNERS[part](content, default_mode, context)
    return FilesVolume(name=name, files=files)


def _empty_volume(name: str, raw: Manifest) -> EmptyVolume:
    limit = raw.get("sizeLimit")
    try:
        size_bytes = None if limit is None else to_bytes(limit)
    except QuantityError as error:
        raise PodSpecError(f'volume "{name}": sizeLimit {error}') from error
    return EmptyVolume(name=name, is_memory=text(raw.get("medium")) == "Memory", size_bytes=size_bytes)


def _claimed_volume(name: str, claim: str, context: _Context) -> HostVolume:
    """The directory of the volume that the claim is bound to."""
    found = context.sources.get((CLAIM, claim))
    if found is None:
        raise ConfigMissingError(f'persistentvolumeclaim "{claim}" not found')
    volume = context.sources.get((VOLUME, text((found.get("spec") or {}).get("volumeName"))))
    if volume is None:
        raise ConfigMissingError(f'persistentvolumeclaim "{claim}" is not bound')
    spec = volume["spec"]
    source = spec.get("hostPath") or spec.get("local")
    if not source:
        raise PodSpecError(f'volume "{name}": the volume of claim {claim} is not available here')
    return HostVolume(name=name, path=text(source.get("path")), type=text(source.get("type")), mode=0o777)


def _config_map_files(raw: Manifest, mode: int, context: _Context) -> dict[str, FileContent]:
    return _object_files(CONFIG_MAP, text(raw.get("name")), raw, mode, context)


def _secret_files(raw: Manifest, mode: int, context: _Context) -> dict[str, FileContent]:
    return _object_files(SECRET, text(raw.get("secretName") or raw.get("name")), raw, mode, context)


def _object_files(kind: str, name: str, raw: Manifest, mode: int, context: _Context) -> dict[str, FileContent]:
    is_optional = raw.get("optional") is True
    source = context.sources.get((kind, name))
    if source is None:
        if is_optional:
            return {}
        raise ConfigMissingError(f'{kind} "{name}" not found')
    entries = decode_entries(kind, source)
    items = mappings(raw.get("items"), f"{kind} {name}: items")
    if not items:
        return {key: FileContent(content, mode) for key, content in entries.items()}
    files = {}
    for item in items:
        key = text(item.get("key"))
        if key in entries:
            files[_inner_path(item)] = FileContent(entries[key], integer(item.get("mode"), mode))
        elif not is_optional:
            raise ConfigMissingError(f"{kind} references non-existent config key: {key}")
    return files


def _downward_files(raw: Manifest, mode: int, context: _Context) -> dict[str, FileContent]:
    files = {}
    for item in mappings(raw.get("items"), "downwardAPI.items"):
        if item.get("fieldRef"):
            shown = field_value(text(item["fieldRef"].get("fieldPath")), context.pod, context.surroundings)
        else:
            reference = item.get("resourceFieldRef") or {}
            shown = resource_value(reference, context.pod, context.pod.containers[0], context.surroundings.node)
        files[_inner_path(item)] = FileContent(shown.encode(), integer(item.get("mode"), mode))
    return files


def _token_files(raw: Manifest, mode: int, context: _Context) -> dict[str, FileContent]:
    request = _token_request(raw)
    if request not in context.tokens:
        raise ConfigMissingError(f'no token for service account "{context.pod.service_account}"')
    return {_inner_path(raw): FileContent(context.tokens[request].encode(), mode)}


_PLANNERS: Final[Mapping[str, Callable[[Manifest, int, _Context], dict[str, FileContent]]]] = {
    "configMap": _config_map_files,
    "secret": _secret_files,
    "downwardAPI": _downward_files,
    "serviceAccountToken": _token_files,
}


def _inner_path(item: Manifest) -> str:
    path = text(item.get("path"))
    if not path or path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise PodSpecError(f"{path!r} is not a path inside a volume")
    return str(PurePosixPath(path))


# --- mounts --------------------------------------------------------------------------------------------------------
def plan_mounts(
    container: ContainerSpec, places: Mapping[str, Path], environment: Mapping[str, str]
) -> tuple[Mount, ...]:
    """The mounts of one container, given the host path of each volume; raises PodSpecError."""
    mounts = []
    for raw in mappings(container.raw.get("volumeMounts"), "volumeMounts"):
        name, target = text(raw.get("name")), text(raw.get("mountPath"))
        if name not in places:
            raise PodSpecError(f'container {container.name} mounts volume "{name}", which the pod does not have')
        if not target:
            raise PodSpecError(f'container {container.name} mounts volume "{name}" nowhere')
        inner = text(raw.get("subPath")) or expand(text(raw.get("subPathExpr")), environment)
        mounts.append(
            Mount(
                source=_below(places[name], inner),
                target=str(PurePosixPath("/") / target),
                is_read_only=raw.get("readOnly") is True,
            )
        )
    return tuple(mounts)


def _below(place: Path, inner: str) -> Path:
    if not inner:
        return place
    if inner.startswith("/") or ".." in PurePosixPath(inner).parts:
        raise PodSpecError(f"subPath {inner!r} leaves its volume")
    return place / inner


def memory_volumes(volumes: tuple[Volume, ...], places: Mapping[str, Path]) -> tuple[MemoryVolume, ...]:
    """The emptyDirs of medium Memory, which become a tmpfs."""
    return tuple(
        MemoryVolume(path=places[volume.name], size_bytes=volume.size_bytes)
        for volume in volumes
        if isinstance(volume, EmptyVolume) and volume.is_memory
    )
