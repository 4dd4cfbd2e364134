"""The explanation of a workload, with the holders of capacity where that is what it lacks, and the changes that would help.

Nodes, pods, TrainingJobs, ResourceQuotas and PriorityClasses of the whole cluster are listed only then, and the RayClusters that hold
what is short are read, with the rights of the caller. Called by `raytide why`, `raytide ui` and workloads.py.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from raytide.api import constants, meta
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Key
from raytide.api.pod import decode_pod
from raytide.client.workload_reader import WorkloadReader
from raytide.explain.explain import explain, lacks_capacity
from raytide.explain.holders import MAX_HOLDERS
from raytide.explain.model import RAYCLUSTER, Explanation, Objects, Unreadable
from raytide.kube.client import Client
from raytide.runtime.clock import Clock

if TYPE_CHECKING:
    from raytide.api.config import SharingConfig
    from raytide.simulator.smallest_change import RayClusterPods

MAX_PODS: Final = 50_000
"""Pods of all namespaces that are read."""


async def explained(
    reader: WorkloadReader, objects: Objects, clock: Clock, sharing: "SharingConfig | None" = None
) -> Explanation:
    """Why the workload is not larger; `objects` are those that the reader read, `sharing` the operator's settings (None: defaults)."""
    found = explain(objects, clock.now())
    if not lacks_capacity(found):
        return found
    # The planner is imported where capacity is short only: that takes a third of the time of `raytide why`.
    from raytide.api.config import SharingConfig  # noqa: PLC0415
    from raytide.client.cluster_reader import ClusterReader, SnapshotError  # noqa: PLC0415
    from raytide.simulator.smallest_change import with_fixes  # noqa: PLC0415

    config = sharing or SharingConfig()
    cluster = ClusterReader(reader.client, has_tenants=bool(config.tenants), needs_jobs=False, max_pods=MAX_PODS)
    try:
        inputs = await cluster.snapshot()
    except SnapshotError as error:
        unknown = Unreadable("capacity", f"who holds the capacity is not known: {error}")
        return replace(found, unreadable=(*found.unreadable, unknown))
    unread = (Unreadable(kind.plural, f"no fix is simulated: {note}") for kind, note in inputs.ignored.items())
    objects = replace(objects, cluster=inputs, unreadable=(*objects.unreadable, *unread))
    found = await asyncio.to_thread(explain, objects, clock.now())
    if inputs.ignored:
        return found
    clusters = await _rayclusters(reader.client, found)
    return await asyncio.to_thread(with_fixes, found, inputs, clusters, config=config, now=clock.now())


async def _rayclusters(client: Client, found: Explanation) -> "list[RayClusterPods]":
    """The RayClusters that hold what is short, as far as they can be read."""
    holders = [one for each in found.blockers for short in each.shortages for one in short.holders]
    keys = dict.fromkeys(Key(one.namespace, one.name) for one in holders if one.kind == RAYCLUSTER)
    keys.pop(Key(found.namespace, found.name), None) if found.kind == RAYCLUSTER else None
    read = await asyncio.gather(*(_raycluster(client, key) for key in list(keys)[:MAX_HOLDERS]))
    return [each for each in read if each is not None]


async def _raycluster(client: Client, key: Key) -> "RayClusterPods | None":
    from pydantic import ValidationError  # noqa: PLC0415 - as above

    from raytide.api.raycluster import RayCluster  # noqa: PLC0415
    from raytide.simulator.smallest_change import RayClusterPods  # noqa: PLC0415

    try:
        obj = await client.get(meta.RAYCLUSTERS, key)
        selector = f"{constants.CLUSTER_LABEL}={key.name}"
        pages = client.pages(meta.PODS, key.namespace, label_selector=selector)
        pods = tuple([decode_pod(item) async for page in pages for item in page.items])
        return None if obj is None else RayClusterPods(RayCluster.parse(obj), pods)
    except (ApiStatusError, ApiUnavailableError, msgspec.MsgspecError, ValidationError):
        return None
