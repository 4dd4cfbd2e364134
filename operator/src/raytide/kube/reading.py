"""Is the object there, as it is now?

Takes a kind and a key, gives the object by one GET, None when it is gone. An answer that is older than what an informer
shows already is no answer: nobody may act on a wish of yesterday, nor forget what has just been made. Called by the
controllers' shells at the start of every pass (D2).
"""

from collections.abc import Callable

from raytide.api.errors import Unavailable
from raytide.api.meta import Key, Manifest, Resource
from raytide.kube.client import Client
from raytide.kube.expectations import version_of


async def read_live(
    client: Client,
    resource: Resource,
    key: Key,
    *,
    shown: Callable[[], int | None],
    relist: Callable[[], None],
) -> Manifest | None:
    """The object; raises Unavailable when it is older than the version that the informer shows (`shown`) by then.

    `relist` has the informer list again then: if the API server's store was restored from an older snapshot, the answer is
    the truth and the informer shows what is no more (FD:REL-C).
    """
    obj = await client.get(resource, key)
    version, known = version_of(obj), shown()
    if known is not None and (obj is None or (version is not None and version < known)):
        relist()
        raise Unavailable(f"the {resource.kind} was read as it was before the informer showed it last")
    return obj
