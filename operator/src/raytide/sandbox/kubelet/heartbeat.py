"""How does the API know that the nodes are alive?

Takes the nodes of this kubelet; creates what is missing and then renews status and lease of each every ten seconds.
Trouble with the API is repeated at the next beat and never ends anything. `register` returns once every node is there;
`beat` is a task of the kubelet.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from raytide.sandbox.kubelet.apiclient import ApiClient, ApiRefusal, ApiSilence, Manifest
from raytide.sandbox.kubelet.nodeobjects import (
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
        """Create every node, insisting until the API agrees."""
        while True:
            try:
                await asyncio.gather(*(self._register(node) for node in self._nodes))
            except (ApiRefusal, ApiSilence) as trouble:
                _log.info("nodes not registered yet: %s", trouble)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def beat(self) -> None:
        """Renew, for ever."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            for node in self._nodes:
                try:
                    await self._renew(node)
                except ApiRefusal as refusal:
                    if refusal.status == 404:
                        await self._register_again(node)
                except ApiSilence as trouble:
                    _log.info("node not renewed node=%s: %s", node.name, trouble)

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
        except (ApiRefusal, ApiSilence) as trouble:
            _log.info("node not registered node=%s: %s", node.name, trouble)

    async def _renew(self, node: NodeFacts) -> None:
        now = self._now()
        status = build_node_status(node, self._since, now)
        await self._api.merge_patch(f"/api/v1/nodes/{node.name}/status", {"status": status})
        spec = build_lease_spec(node.name, now)
        try:
            await self._api.merge_patch(f"{_LEASES}/{node.name}", {"spec": spec})
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise
            await self._create(_LEASES, build_lease(node.name, self._uids[node.name], now))

    async def _create(self, path: str, manifest: Manifest) -> Manifest | None:
        """The object as created; None when it is there already."""
        try:
            return await self._api.request("POST", path, body=manifest)
        except ApiRefusal as refusal:
            if refusal.status != 409:
                raise
            return None
