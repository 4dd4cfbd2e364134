"""Shared dependencies of all pods of one kubelet.

Holds the API client, the runtime, the event recorder, the clock and the node's figures, and reads ConfigMaps, Secrets
and tokens for the pod workers. It makes no decisions and keeps no state of any pod. Made once by kubelet.py and passed
to every pod worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from raytide_sandbox.container_runtime.interface import Runtime
from raytide_sandbox.kubelet.apiclient import ApiClient, ApiStatusError, Manifest
from raytide_sandbox.kubelet.env import VOLUME, NodeFigures, PodSurroundings, Source
from raytide_sandbox.kubelet.events import EventRecorder
from raytide_sandbox.kubelet.podspec import PodSpec
from raytide_sandbox.kubelet.volumes import TokenRequest

_FORBIDDEN: Final = 403
_PATIENCE_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a kubelet provides to its pod workers."""

    api: ApiClient
    runtime: Runtime
    events: EventRecorder
    now: Callable[[], datetime]
    directory: Path
    figures: NodeFigures
    service_host: str
    service_port: int

    def surroundings(self, pod_ip: str) -> PodSurroundings:
        """Environment values of a pod with that IP."""
        return PodSurroundings(
            pod_ip=pod_ip, node=self.figures, service_host=self.service_host, service_port=self.service_port
        )

    async def read_sources(self, pod: PodSpec, wanted: Iterable[Source]) -> dict[Source, Manifest | None]:
        """Read objects of the pod's namespace, and volumes; None for each that does not exist."""
        ordered = sorted(wanted)
        found = await asyncio.gather(*(self._read_source(pod.namespace, source) for source in ordered))
        return dict(zip(ordered, found, strict=True))

    async def read_tokens(self, pod: PodSpec, wanted: Iterable[TokenRequest]) -> dict[TokenRequest, str]:
        """Request service-account tokens bound to the pod; raises ApiStatusError and ApiUnavailableError."""
        return {request: await self._read_token(pod, request) for request in wanted}

    async def _read_source(self, namespace: str, source: Source) -> Manifest | None:
        kind, name = source
        try:
            scope = "" if kind == VOLUME else f"/namespaces/{namespace}"
            path = f"/api/v1{scope}/{kind}s/{name}"
            return await _insist(lambda: self.api.get(path))
        except ApiStatusError as error:
            if error.status == 404:
                return None
            raise

    async def _read_token(self, pod: PodSpec, request: TokenRequest) -> str:
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        spec: dict[str, object] = {"expirationSeconds": request.lifetime_s, "boundObjectRef": bound}
        spec["audiences"] = [request.audience] if request.audience else []
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{pod.service_account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await _insist(lambda: self.api.request("POST", path, body=body))
        return str((answer.get("status") or {}).get("token") or "")


async def _insist(ask: Callable[[], Awaitable[Manifest]]) -> Manifest:
    """Retry on 403: the Node authorizer may see the binding of a pod later than the kubelet does."""
    for delay_s in _PATIENCE_S:
        try:
            return await ask()
        except ApiStatusError as error:
            if error.status != _FORBIDDEN:
                raise
        await asyncio.sleep(delay_s)
    return await ask()
