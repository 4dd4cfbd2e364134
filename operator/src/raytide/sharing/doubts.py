"""For whose pods is something else missing than room?

A plan knows requests, taints, labels and affinity to nodes. kube-scheduler knows more: ports of the host, affinity between
pods, spread, volumes, devices. Where the plan has had free room for pods for a while and kube-scheduler still finds no node
for them, the plan is wrong, for whatever reason. From then on these pods hold no room, nobody gives any for them, and what
is above a minimum is taken back; after some minutes they are believed once more. Remembers moments, in this process only: a
restart means to wait a minute longer. Kept by controller.py (FD:SH-B6).
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from raytide.elastic.model import Division, ParticipantId, Pool

DOUBT_AFTER: Final = timedelta(seconds=60)
"""kube-scheduler looks again at a pod when room becomes free, and after ten seconds at most when it has looked before."""
BELIEVE_AFTER: Final = timedelta(seconds=600)

_Who: TypeAlias = ParticipantId | str
"""A participant, or pods of others by the name of the oldest."""


class Doubts:
    """Since when plans and kube-scheduler have disagreed.

    - `laid_over` gives the pool with `is_doubted` where they have for a minute.
    - `learn` takes what the plan of that pool says.
    - `changes_at` is when time alone changes the answer.
    """

    def __init__(self) -> None:
        self._since: dict[_Who, datetime] = {}
        self._until: dict[_Who, datetime] = {}

    @property
    def changes_at(self) -> datetime | None:
        """When a doubt begins or ends; None where none will."""
        return min((*(since + DOUBT_AFTER for since in self._since.values()), *self._until.values()), default=None)

    def laid_over(self, pool: Pool, now: datetime) -> Pool:
        """The pool as it is to be divided."""
        self._until |= {who: now + BELIEVE_AFTER for who, since in self._since.items() if since + DOUBT_AFTER <= now}
        stuck = {one.id for one in pool.participants if one.unschedulable} | {one.name for one in pool.strangers}
        self._until = {who: until for who, until in self._until.items() if until > now and who in stuck}
        if not self._until:
            return pool
        return replace(
            pool,
            participants=tuple(
                replace(one, is_doubted=True) if one.id in self._until else one for one in pool.participants
            ),
            strangers=tuple(
                replace(one, is_doubted=True) if one.name in self._until else one for one in pool.strangers
            ),
        )

    def learn(self, division: Division, now: datetime) -> None:
        """Whom the plan has room for although kube-scheduler has none, and nobody else."""
        self._since = {who: self._since.get(who, now) for who in division.contradicted}
