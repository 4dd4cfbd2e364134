"""Capacity of the cluster, followed by watches of all nodes and all unfinished pods.

One list of each kind at the start and one watch after it, so that a refresh of the page reads nothing. Pods are listed only where
nodes may be, because neither is of use without the other. Each object is reduced to its requests and not kept. Called by serve.py.
"""

import asyncio
from collections.abc import Iterable

from raytide.api import meta
from raytide.api.capacity import UNFINISHED_PODS
from raytide.explain.cluster_capacity import CapacityView, ClusterCapacity, decode_node_offer, decode_pod_requests
from raytide.kube.client import Client
from raytide.kube.informer import Informer
from raytide.kube.shared_watch import SharedWatches
from raytide.runtime.clock import Clock


class CapacityWatch:
    """Requests and allocatable amounts of the whole cluster."""

    def __init__(self, client: Client, clock: Clock, gpus: Iterable[str]) -> None:
        watches = SharedWatches(client, clock=clock)
        capacity = self._capacity = ClusterCapacity(gpus)
        self._nodes = Informer(
            watches,
            meta.NODES,
            decoder=decode_node_offer,
            on_change=capacity.change_node,
            if_forbidden="capacity is not shown",
        )
        self._pods = Informer(
            watches,
            meta.PODS,
            decoder=decode_pod_requests,
            on_change=capacity.change_pod,
            field_selector=UNFINISHED_PODS,
            if_forbidden="capacity is not shown",
        )

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            await self._nodes.wait_synced()
            tasks.create_task(self._pods.run())

    def view(self) -> CapacityView:
        """The capacity once both kinds are listed, and the API server's answer if one may not be."""
        for informer in (self._nodes, self._pods):
            if informer.is_listable is False:
                return CapacityView(problem=informer.error)
        return self._capacity.view() if self._nodes.is_synced and self._pods.is_synced else CapacityView()
