"""Reader of the ResourceQuotas that hold back multi-host replicas.

Takes the rejections that hold back replicas, reads the quotas they name, each group's at most every ten seconds, and
returns for each group whether a whole replica would fit now. Quotas are not watched, because few clusters reach one;
without permission to read them nothing is returned, and the backoff runs its course. Kept by the reconciler (SC:S4).
"""

import logging
from collections.abc import Iterable
from typing import Final

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import RESOURCE_QUOTAS, Key
from raytide.api.raycluster import RayCluster
from raytide.kube.client import Client
from raytide.raycluster import messages
from raytide.raycluster.observed import PendingRetry
from raytide.raycluster.quota import Shortage, has_capacity, shortage_of
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

LOOKUP_INTERVAL_S: Final = 10.0


class QuotaLookup:
    """Reads a quota while a group waits for it.

    - A group's quota is read at most every ten seconds.
    - A deleted quota has capacity; for one that cannot be read nothing is returned.
    """

    def __init__(self, client: Client, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._looked_at: dict[Key, dict[str, float]] = {}

    async def has_capacity_by_group(
        self, cluster: RayCluster, pending_retries: Iterable[PendingRetry]
    ) -> dict[str, bool]:
        """Group -> whether all hosts of one more replica would be admitted; only for quotas read in this call."""
        hosts_by_group = {group.group_name: group.num_of_hosts for group in cluster.spec.worker_group_specs}
        found: dict[str, bool] = {}
        for retry in pending_retries:
            shortage = shortage_of(retry.message)
            hosts = hosts_by_group.get(retry.group)
            if retry.replicas_in_s <= 0 or shortage is None or hosts is None:
                continue
            if self._is_due(cluster.key, retry.group):
                has_capacity = await self._has_capacity(cluster.key, shortage, hosts)
                found |= {} if has_capacity is None else {retry.group: has_capacity}
        return found

    def forget(self, key: Key) -> None:
        """Drop the times of a deleted cluster."""
        self._looked_at.pop(key, None)

    def _is_due(self, key: Key, group: str) -> bool:
        now, looked_at = self._clock.monotonic(), self._looked_at.setdefault(key, {})
        if now - looked_at.get(group, now - LOOKUP_INTERVAL_S) < LOOKUP_INTERVAL_S:
            return False
        looked_at[group] = now
        return True

    async def _has_capacity(self, key: Key, shortage: Shortage, hosts: int) -> bool | None:
        try:
            quota = await self._client.get(RESOURCE_QUOTAS, Key(key.namespace, shortage.quota))
        except (ApiStatusError, ApiUnavailableError) as error:
            log.debug(messages.QUOTA_NOT_READ, shortage.quota, error)
            return None
        return has_capacity(shortage, quota, hosts)
