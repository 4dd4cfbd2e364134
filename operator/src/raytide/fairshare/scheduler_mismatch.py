"""Scheduler mismatch: pods that kube-scheduler cannot place although the plan has capacity for them.

A plan considers requests, taints, labels and node affinity. kube-scheduler also checks host ports, affinity between
pods, topology spread, volumes and devices. If a plan has had free capacity for pods for a while and kube-scheduler
still finds no node for them, the plan is wrong. From then on these pods hold no capacity, no participant is scaled down
for them, and instances above a minimum are released; after some minutes they count again. The state is in memory only:
a restart delays the detection by a minute. Used by reconciler.py (FD:SH-B6).
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from raytide.fairshare.algorithm.model import Allocation, ClusterSnapshot, ParticipantId

DOUBT_AFTER: Final = timedelta(seconds=60)
"""kube-scheduler retries a pod when capacity becomes free, at most ten seconds after its last attempt."""
BELIEVE_AFTER: Final = timedelta(seconds=600)

_Who: TypeAlias = ParticipantId | str
"""A participant, or pods of other workloads by the name of the oldest."""


class SchedulerMismatches:
    """Since when plans and kube-scheduler have disagreed.

    - `with_mismatches` returns the pool with `is_doubted` set where they have disagreed for `DOUBT_AFTER`.
    - `learn` records the disagreements in the plan of that pool.
    - `changes_at` is when time alone changes the result.
    """

    def __init__(self) -> None:
        self._since: dict[_Who, datetime] = {}
        self._until: dict[_Who, datetime] = {}

    @property
    def changes_at(self) -> datetime | None:
        """When `is_doubted` is next set or cleared; None if it is not."""
        return min((*(since + DOUBT_AFTER for since in self._since.values()), *self._until.values()), default=None)

    def with_mismatches(self, pool: ClusterSnapshot, now: datetime) -> ClusterSnapshot:
        """The pool as it is to be divided."""
        self._until |= {who: now + BELIEVE_AFTER for who, since in self._since.items() if since + DOUBT_AFTER <= now}
        stuck = {one.id for one in pool.participants if one.unschedulable} | {one.name for one in pool.external_pods}
        self._until = {who: until for who, until in self._until.items() if until > now and who in stuck}
        if not self._until:
            return pool
        return replace(
            pool,
            participants=tuple(
                replace(one, is_doubted=True) if one.id in self._until else one for one in pool.participants
            ),
            external_pods=tuple(
                replace(one, is_doubted=True) if one.name in self._until else one for one in pool.external_pods
            ),
        )

    def learn(self, division: Allocation, now: datetime) -> None:
        """Record exactly the pods that have capacity in the plan although kube-scheduler finds no node for them."""
        self._since = {who: self._since.get(who, now) for who in division.contradicted}
