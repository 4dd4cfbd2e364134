"""Volumes of one pod: creation and refresh.

Takes a pod and its directory; reads the objects its volumes refer to, writes the files, and rewrites them while the pod
runs, with a new token before the old one expires. A failed refresh leaves the previous files in place. Owned by
podworker.py: `prepare` runs before the sandbox is created, `keep_fresh` as a task beside the containers.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from raytide_sandbox.container_runtime.interface import MemoryVolume
from raytide_sandbox.kubelet.apiclient import ApiStatusError, ApiUnavailableError
from raytide_sandbox.kubelet.env import ConfigMissingError
from raytide_sandbox.kubelet.kubelet_context import Host
from raytide_sandbox.kubelet.podfiles import PodFiles
from raytide_sandbox.kubelet.podspec import PodSpec, PodSpecError
from raytide_sandbox.kubelet.volumefiles import refresh_files, volume_paths, write_volumes
from raytide_sandbox.kubelet.volumes import (
    FilesVolume,
    TokenRequest,
    Volume,
    bound_volumes,
    memory_volumes,
    plan_volumes,
    token_requests,
    volume_references,
)

_REFRESH_S: Final = 10.0
"""Refresh period in seconds, shorter than the minute and more of a real kubelet, for interactive use."""
_TOKEN_AGE_SHARE: Final = 0.8
ERRORS: Final = (ConfigMissingError, PodSpecError, ApiStatusError, ApiUnavailableError, OSError, ValueError)

_log = logging.getLogger(__name__)


class PodVolumes:
    """The volumes of one pod."""

    def __init__(self, host: Host, files: PodFiles) -> None:
        self._host = host
        self._files = files
        self._volumes: tuple[Volume, ...] | None = None
        self._tokens: dict[TokenRequest, tuple[str, datetime]] = {}

    @property
    def places(self) -> Mapping[str, Path]:
        """Host path of each volume; empty before `prepare`."""
        return volume_paths(self._volumes or (), self._files.volumes)

    @property
    def in_memory(self) -> tuple[MemoryVolume, ...]:
        """The volumes that the sandbox must mount as tmpfs."""
        return memory_volumes(self._volumes or (), self.places)

    async def prepare(self, pod: PodSpec) -> None:
        """Write every volume, once; raises one of `TROUBLE`."""
        if self._volumes is not None:
            return
        volumes = await self._plan(pod)
        self._files.prepare()
        write_volumes(volumes, self._files.volumes)
        self._volumes = volumes

    async def keep_fresh(self, pod: PodSpec) -> None:
        """Rewrite changed files until cancelled; returns at once when the pod has no volume of API objects."""
        if not any(isinstance(volume, FilesVolume) for volume in self._volumes or ()):
            return
        while True:
            await asyncio.sleep(_REFRESH_S)
            try:
                refresh_files(await self._plan(pod), self._files.volumes)
            except ERRORS as error:
                _log.info("volumes not refreshed pod=%s/%s: %s", pod.namespace, pod.name, error)

    async def _plan(self, pod: PodSpec) -> tuple[Volume, ...]:
        sources = await self._host.read_sources(pod, volume_references(pod))
        sources |= await self._host.read_sources(pod, bound_volumes(sources))
        tokens = await self._fresh_tokens(pod)
        return plan_volumes(pod, self._host.surroundings(""), sources, tokens)

    async def _fresh_tokens(self, pod: PodSpec) -> dict[TokenRequest, str]:
        now = self._host.now()
        wanted = token_requests(pod)
        old = {request for request, (_, renew_at) in self._tokens.items() if now < renew_at}
        for request, token in (await self._host.read_tokens(pod, wanted - old)).items():
            self._tokens[request] = token, now + timedelta(seconds=request.lifetime_s * _TOKEN_AGE_SHARE)
        return {request: self._tokens[request][0] for request in wanted}
