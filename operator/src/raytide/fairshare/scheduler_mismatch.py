"""Scheduler mismatch: pods that kube-scheduler cannot place although the plan has capacity for them.

A plan considers requests, the lowest host port, taints, labels and node affinity. kube-scheduler also checks affinity between pods, topology spread, volumes and devices; another scheduler may look at none of them. If a plan has had free capacity for pods for
a while and they still have no node, the plan is wrong. From then on these pods hold no capacity, and instances above a minimum that
are unschedulable are released; after some minutes they hold free capacity again, and for an hour no participant is scaled down
for them. The state is in memory only: after a restart it is learnt again. Used by reconciler.py (FD:SH-B6, FD:SEC3-4, FD:TJ3-1).
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from raytide.fairshare.algorithm.model import Allocation, ClusterSnapshot, ParticipantId

DOUBT_AFTER: Final = timedelta(seconds=60)
"""kube-scheduler retries a pod when capacity becomes free, at most ten seconds after its last attempt."""
BELIEVE_AFTER: Final = timedelta(seconds=600)
FORGET_AFTER: Final = timedelta(hours=1)
"""How long no participant is scaled down for pods after they held no capacity for the last time."""

_Who: TypeAlias = ParticipantId | str
"""A participant, or pods of other workloads by the name of the oldest."""


class SchedulerMismatches:
    """Since when plans and kube-scheduler have disagreed.

    - `with_mismatches` returns the pool with `is_doubted` set where they have disagreed for `DOUBT_AFTER`, and `is_unproven` for an hour.
    - `learn` records the disagreements in the plan of that pool.
    - `changes_at` is when time alone changes the result.
    """

    def __init__(self) -> None:
        self._since: dict[_Who, datetime] = {}
        self._until: dict[_Who, datetime] = {}
        self._failed_until: dict[_Who, datetime] = {}

    @property
    def changes_at(self) -> datetime | None:
        """When time alone changes the result; None if it does not."""
        doubted_at = (since + DOUBT_AFTER for since in self._since.values())
        return min((*doubted_at, *self._until.values(), *self._failed_until.values()), default=None)

    def with_mismatches(self, pool: ClusterSnapshot, now: datetime) -> ClusterSnapshot:
        """The pool as it is to be divided."""
        doubted = [who for who, since in self._since.items() if since + DOUBT_AFTER <= now]
        self._until |= dict.fromkeys(doubted, now + BELIEVE_AFTER)
        self._failed_until |= dict.fromkeys(doubted, now + FORGET_AFTER)
        stuck = {one.id for one in pool.participants if one.has_unbound} | {one.name for one in pool.external_pods}
        self._until = {who: until for who, until in self._until.items() if until > now and who in stuck}
        self._failed_until = {who: until for who, until in self._failed_until.items() if until > now}
        failed, is_doubted = self._failed_until, self._until.__contains__
        if not failed:
            return pool
        return replace(
            pool,
            participants=tuple(
                replace(one, is_doubted=is_doubted(one.id), is_unproven=True, may_preempt=False)
                if one.id in failed
                else one
                for one in pool.participants
            ),
            external_pods=tuple(
                replace(one, is_doubted=is_doubted(one.name), may_preempt=False) if one.name in failed else one
                for one in pool.external_pods
            ),
        )

    def learn(self, division: Allocation, now: datetime) -> None:
        """Record exactly the pods that have capacity in the plan although kube-scheduler finds no node for them."""
        self._since = {who: self._since.get(who, now) for who in division.contradicted}
