"""Whether a node autoscaler adds nodes to this cluster, so that pods without capacity are worth creating.

A setting; or what the node autoscalers themselves have there even before the first node: Karpenter its API group, Cluster
Autoscaler its ConfigMap in kube-system. Events about pods are no sign: there are none while no pod exists, and any client
that may create events could forge one. Used by reconciler.py (FD:TJ3-5).
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import CONFIG_MAPS, Key
from raytide.api.node_autoscaler import Presence
from raytide.fairshare import messages
from raytide.kube.client import Client
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

KARPENTER: Final = "karpenter.sh"
CLUSTER_AUTOSCALER: Final = Key("kube-system", "cluster-autoscaler-status")
LOOK_EVERY: Final = timedelta(minutes=10)


class NodeAutoscalerDetector:
    """Finds out whether nodes are added for pods without a node.

    - `is_present` is the answer.
    - `refresh` looks for it if that is due: every ten minutes, only while a plan depends on it, and no more once one was found.
    - `changes_at` is when it looks next; None: never, as things are.
    """

    def __init__(self, client: Client, *, clock: Clock, presence: Presence) -> None:
        self._client = client
        self._clock = clock
        self._is_undecided = presence is Presence.AUTO
        self._looked_at: datetime | None = None
        self.is_present = presence is Presence.PRESENT
        self.is_wanted = False
        """Whether the last plan depends on it: a gang waits for nodes."""

    @property
    def changes_at(self) -> datetime | None:
        """When `refresh` is due; None: not as things are."""
        if not self._is_undecided or not self.is_wanted:
            return None
        return self._clock.now() if self._looked_at is None else self._looked_at + LOOK_EVERY

    async def refresh(self) -> None:
        """Look for it if that is due; what may not or cannot be read is not there now, which no pass waits for."""
        due_at, now = self.changes_at, self._clock.now()
        if due_at is None or due_at > now:
            return
        is_first, self._looked_at = self._looked_at is None, now
        try:
            sign = await self._sign()
        except (ApiStatusError, ApiUnavailableError) as error:  # with Roles in the watched namespaces only
            log.log(logging.INFO if is_first else logging.DEBUG, messages.NODE_AUTOSCALER_UNKNOWN, error)
            return
        if sign:
            log.info(messages.NODES_ARE_AUTOSCALED, sign)
            self._is_undecided, self.is_present = False, True

    async def _sign(self) -> str:
        if await self._client.serves(KARPENTER):
            return f"API group {KARPENTER}"
        status = await self._client.get(CONFIG_MAPS, CLUSTER_AUTOSCALER)
        return f"ConfigMap {CLUSTER_AUTOSCALER}" if status is not None else ""
