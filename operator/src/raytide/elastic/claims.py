"""Who is below its floor, and what is taken from whom so that it begins?

Serves by priority, then age: pods that wait for a node take free room first, strangers' among them; then everybody who is
below its floor gets it whole from free room, or whole by taking single steps from the best-off who hold what is short on a
node the claimant may use, or nothing at all, and then nobody is touched (TJ §3 rows 6, 7, 12; TJ §4 step 1). Never takes
from a higher priority, below a floor, or for what cannot fit anyway.

Room that pods are about to leave is for whole floors first: a snapshot does not say for whom a donor gave it, but nobody is
made to give for a surplus, a part of a floor or, unless it offered that, a stranger, so these hold only what is free already,
and the rest when all claims are served. Otherwise a donor would pay again for the same claimant as long as its first pods
take to go. Called by `fairness.py`; mutable state in `state.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from raytide.elastic.donors import Group, Potential, Reach
from raytide.elastic.model import (
    ADMITTED,
    COOLING_DOWN,
    HIGHER_PRIORITY,
    INSUFFICIENT,
    REACHING_MINIMUM,
    RECLAIMED,
    YIELDED,
    ParticipantId,
    Shape,
    Stranger,
)
from raytide.elastic.placement import PodShape
from raytide.elastic.reclaim import Reclaim
from raytide.elastic.share import Pods, Share
from raytide.elastic.state import Placement, Refusal, State, quota_refusal
from raytide.elastic.steps import would_grow_back

_THERE, _TO_COME = range(2)

_GIVING: Final = (Reach.WILLING, Reach.YIELDING)
"""In which somebody really gives."""

_OTHERS: Final = 4
"""So often others are looked for."""

_FOR_JOBS: Final = (Reach.WILLING, Reach.COOLING, Reach.ANYBODY)

Needs: TypeAlias = list[tuple[Pods, int]]


@dataclass(eq=False, slots=True)
class Claims:
    """The claims of one plan, and which of them wait for a cool-down to end."""

    state: State
    cooling: list[tuple[Share, Needs]] = field(default_factory=list)
    _potential: Potential | None = None
    _failed: set[tuple[object, ...]] = field(default_factory=set)
    _late: list[tuple[Pods, Share | None]] = field(default_factory=list)

    def serve(self) -> None:
        """Everybody in turn: highest priority first, in it those that exist before those that want to, then by age."""
        turns: list[tuple[tuple[int, int, str, str], Stranger | Share]] = [
            ((-stranger.priority, _THERE, stranger.created_at, _spelled(stranger.shape)), stranger)
            for stranger in self.state.pool.strangers
        ]
        for number, share in enumerate(self.state.shares):
            if share.is_complete:
                continue
            priority, born, last = -share.of.priority, share.of.created_at, f"{number:09}"
            turns.append(((priority, _THERE, born, last), share))
            turns.append(((priority, _TO_COME, born, last), share))
        late = self._late
        for (_, phase, _, _), who in sorted(turns, key=lambda turn: turn[0]):
            if isinstance(who, Stranger):
                pods = self.state.receive(who)
                if who.is_unschedulable and not who.is_doubted:
                    self._yield_to(who, pods)
                late.append((pods, None))
            elif phase == _THERE:
                self.state.fill(who)
                late += [(pods, who) for pods in who.all_pods()]
            else:
                self._claim(who)
        self.fill_again()

    def fill_again(self) -> None:
        """Whoever still has pods without a node takes room that somebody is about to leave, in the order of turns."""
        for pods, of in self._late:
            self.state.fill_late(pods, of)

    def _claim(self, share: Share) -> None:
        needs = self._needs(share)
        if not needs:
            if share.has_begun and share.size < share.of.floor:  # asked for less than its minimum, and has it
                share.grows(share.of.floor, REACHING_MINIMUM, [], is_released=True)
            return
        share.is_waiting = True
        refusal = self.state.refusals.get(share.of.id) or self._refused_by_quota(share, needs)
        if refusal is None:
            refusal = self._granted(share, needs)
        if refusal is None:
            share.is_waiting = False
        else:
            self.state.refusals[share.of.id] = refusal

    @staticmethod
    def _needs(share: Share) -> Needs:
        """What it lacks to have its floor; empty if it has it."""
        if share.of.floor == 0 and share.size == 0:
            return []
        needs = [(pods, share.lacks_of(pods)) for pods in share.all_pods() if share.lacks_of(pods) > 0]
        return sorted(needs, key=lambda need: need[0].pod.size, reverse=True)

    def _refused_by_quota(self, share: Share, needs: Needs) -> Refusal | None:
        """A gang's pods do not exist yet: its quotas have to allow them."""
        if share.size >= share.of.floor:
            return None
        refusal = self.state.quotas.shortfall(share.of.id, _wanted(needs))
        return None if refusal is None else quota_refusal(refusal)

    def _granted(self, share: Share, needs: Needs) -> Refusal | None:
        """None if it has all it needs now; else why not, with nothing changed."""
        free = Reclaim(self.state)
        if free.places(needs):
            self._commit(share, free)
            return None
        if share.of.is_forbidden:  # nobody gives for pods that the API has refused before
            return Refusal(INSUFFICIENT, needs=_wanted(needs))
        for reach in _FOR_JOBS:
            attempt = self._reached(share.of.priority, needs, reach)
            if attempt is not None and reach is Reach.WILLING:
                self._commit(share, attempt)
                return None
            if attempt is not None:
                return self._held_by(share, needs, attempt, reach)
        return Refusal(INSUFFICIENT, needs=_wanted(needs))

    def _yield_to(self, who: Stranger, pods: Pods) -> None:
        """Each of these pods by itself has room that is about to be free, or that those give who offered it (TJ §3 row 6c).

        While somebody gives, or may, room that others leave is theirs before claims are served, as kube-scheduler will see
        it: they come first by their priority, and what was given for them would go to somebody else.
        """
        offering = [share for share in self.state.shares if share.of.yields and share.of.priority < who.priority]
        if not any(share.size > share.of.floor or not share.of.is_settled for share in offering):
            return
        self.state.fill_late(pods, None)
        count = pods.loose
        while count:
            attempt = self._reached(who.priority, [(pods, count)], Reach.YIELDING)
            if attempt is None:
                count //= 2  # so many at once have no room, but each stands for itself
                continue
            self._shrink_donors(attempt, YIELDED, for_pods=[who.name] * count)
            pods.loose -= count
            pods.pending += [spot.name for _, spot, _ in attempt.placements]
            count = min(count, pods.loose)

    def _givers(self, priority: int, reach: Reach) -> frozenset[Group]:
        return self._bound().givers(priority, reach)

    def _bound(self) -> Potential:
        if self._potential is None:
            self._potential = Potential(self.state)
        return self._potential

    def _reached(self, priority: int, needs: Needs, reach: Reach) -> Reclaim | None:
        """The attempt that gave everything; hopeless ones are not made, and none is made twice."""
        wanted = _wanted(needs)
        givers = self._givers(priority, reach)
        key = (_numbers(wanted), givers)
        if key in self._failed:
            return None
        if self._bound().suffices(wanted, givers):
            attempt = Reclaim(self.state)
            if attempt.succeeds(priority, needs, reach):
                return self._sparing(attempt, priority, needs, reach) if reach in _GIVING else attempt
        self._failed.add(key)
        return None

    def _sparing(self, first: Reclaim, priority: int, needs: Needs, reach: Reach) -> Reclaim:
        """The same from others, where somebody would give much and take it back at once: small pods, scattered.

        Others of its priority, that is: what is above it never pays for what is below.
        """
        most = max((take.donor.of.priority for take in first.takes), default=priority)
        attempt, spared = first, frozenset(share.rank for share in self.state.shares if share.of.priority > most)
        for _ in range(_OTHERS):
            takes = [take for take in attempt.takes if take.donor.of.priority == most]
            in_vain = {take.donor.rank for take in takes if would_grow_back(self.state, take.donor, take.nodes)}
            if not in_vain:
                return attempt
            attempt.undo()
            spared |= in_vain
            attempt = Reclaim(self.state, spared=spared)
            if not attempt.succeeds(priority, needs, reach):
                break
        else:
            attempt.undo()
        attempt = Reclaim(self.state)
        attempt.succeeds(priority, needs, reach)
        return attempt

    def _held_by(self, share: Share, needs: Needs, attempt: Reclaim, reach: Reach) -> Refusal:
        """Somebody has it who may not give it now: one who cools down will, so what is free already is kept for then."""
        holder = attempt.takes[-1].donor.of.id if attempt.takes else None
        attempt.undo()
        if reach is Reach.COOLING:
            self.cooling.append((share, needs))
        kind = COOLING_DOWN if reach is Reach.COOLING else HIGHER_PRIORITY
        return Refusal(kind, needs=_wanted(needs), holder=holder)

    def _commit(self, share: Share, attempt: Reclaim) -> None:
        self._shrink_donors(attempt, RECLAIMED, for_id=share.of.id)
        is_released = all(is_now for _, _, is_now in attempt.placements) and not attempt.takes
        if share.size < share.of.floor:
            count = share.of.floor - share.size
            instances = [spot.name for pods, spot, _ in attempt.placements if pods is share.instances]
            self._charge(share, attempt.placements)
            reason = ADMITTED if share.size == 0 and share.of.is_gang else REACHING_MINIMUM
            share.grows(share.size + count, reason, instances, is_released=is_released)
        for pods in share.all_pods():
            placed = [spot.name for those, spot, _ in attempt.placements if those is pods]
            pods.loose = max(0, pods.loose - len(placed))
            pods.pending.extend(placed)

    @staticmethod
    def _shrink_donors(
        attempt: Reclaim, reason: str, *, for_id: ParticipantId | None = None, for_pods: Sequence[str] = ()
    ) -> None:
        for rank in sorted({take.donor.rank for take in attempt.takes}):
            takes = [take for take in attempt.takes if take.donor.rank == rank]
            nodes = [name for take in takes for name in take.nodes]
            donor, count = takes[0].donor, sum(take.count for take in takes)
            # Who makes room for its own master or parameter servers gives to nobody.
            donor.shrinks_by(count, reason, nodes, None if donor.of.id == for_id else for_id, for_pods)

    def _charge(self, share: Share, placements: list[Placement]) -> None:
        """Pods that do not exist yet count from now on, in sums and quotas."""
        for pods, _, _ in placements:
            self.state.load.spend_limits(pods.pod, 1)
            self.state.quotas.spend(share.of.id, [(pods.pod, 1)])


def _wanted(needs: Needs) -> tuple[tuple[PodShape, int], ...]:
    return tuple((pods.pod, count) for pods, count in needs)


def _numbers(wanted: tuple[tuple[PodShape, int], ...]) -> tuple[tuple[int, int], ...]:
    """The same in numbers."""
    return tuple((pod.number, count) for pod, count in wanted)


def _spelled(shape: Shape) -> str:
    """Something to order by that does not depend on the order of the input."""
    return repr((sorted(shape.requests.items()), sorted(shape.limits.items()), shape.constraints))
