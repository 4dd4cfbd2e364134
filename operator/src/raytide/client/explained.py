"""The explanation of a workload, with the holders of capacity where that is what it lacks.

Nodes and pods of the whole cluster are listed only then, with the rights of the caller. Called by `raytide why`, `raytide ui` and
workloads.py.
"""

import asyncio

from raytide.client.workload_reader import WorkloadReader
from raytide.explain.explain import explain, lacks_capacity
from raytide.explain.model import Explanation, Objects
from raytide.runtime.clock import Clock


async def explained(reader: WorkloadReader, objects: Objects, clock: Clock) -> Explanation:
    """Why the workload is not larger; `objects` are those that the reader read."""
    found = explain(objects, clock.now())
    if not lacks_capacity(found):
        return found
    return await asyncio.to_thread(explain, await reader.with_cluster(objects), clock.now())
