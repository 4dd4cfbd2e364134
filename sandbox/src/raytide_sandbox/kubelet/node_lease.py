"""Heartbeat of the nodes: Node status and Lease.

Takes the nodes of one kubelet, creates missing Nodes and Leases, then renews status and Lease of each every 10 s. API
errors are retried at the next beat and end nothing. `register` returns once every node is registered; `beat` is a task
of the kubelet.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from raytide_sandbox.kubelet.apiclient import ApiClient, ApiStatusError, ApiUnavailableError, Manifest
from raytide_sandbox.kubelet.node_status import (
    LEASE_NAMESPACE,
    NodeFacts,
    build_lease,
    build_lease_spec,
    build_node,
    build_node_status,
)

_PERIOD_S: Final = 10.0
_RETRY_S: Final = 0.5
_LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"

_log = logging.getLogger(__name__)


class Heartbeat:
    """Status and lease of every node of one kubelet."""

    def __init__(self, api: ApiClient, nodes: Sequence[NodeFacts], now: Callable[[], datetime]) -> None:
        self._api = api
        self._nodes = nodes
        self._now = now
        self._since = now()
        self._uids: dict[str, str] = {}

    async def register(self) -> None:
        """Create every Node and its Lease, with retries until both exist."""
        while True:
            try:
                await asyncio.gather(*(self._register(node) for node in self._nodes))
            except (ApiStatusError, ApiUnavailableError) as error:
                _log.info("nodes not registered yet: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def beat(self) -> None:
        """Renew every node until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            for node in self._nodes:
                try:
                    await self._renew(node)
                except ApiStatusError as error:
                    if error.status == 404:
                        await self._register_again(node)
                except ApiUnavailableError as error:
                    _log.info("node not renewed node=%s: %s", node.name, error)

    async def _register(self, node: NodeFacts) -> None:
        status = build_node_status(node, self._since, self._now())
        created = await self._create("/api/v1/nodes", {**build_node(node), "status": status})
        if created is None:
            created = await self._api.get(f"/api/v1/nodes/{node.name}")
        self._uids[node.name] = str((created.get("metadata") or {}).get("uid") or "")
        await self._renew(node)

    async def _register_again(self, node: NodeFacts) -> None:
        try:
            await self._register(node)
        except (ApiStatusError, ApiUnavailableError) as error:
            _log.info("node not registered node=%s: %s", node.name, error)

    async def _renew(self, node: NodeFacts) -> None:
        now = self._now()
        status = build_node_status(node, self._since, now)
        await self._api.merge_patch(f"/api/v1/nodes/{node.name}/status", {"status": status})
        spec = build_lease_spec(node.name, now)
        try:
            await self._api.merge_patch(f"{_LEASES}/{node.name}", {"spec": spec})
        except ApiStatusError as error:
            if error.status != 404:
                raise
            await self._create(_LEASES, build_lease(node.name, self._uids[node.name], now))

    async def _create(self, path: str, manifest: Manifest) -> Manifest | None:
        """Create an object and return it; None when it exists already."""
        try:
            return await self._api.request("POST", path, body=manifest)
        except ApiStatusError as error:
            if error.status != 409:
                raise
            return None
