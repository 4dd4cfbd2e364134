"""What has been decided so far in one plan?

Everything that `claims.py` and `growth.py` share: the room, the two budgets, one `Share` per participant in the order of
ids. It knows how pods without a node get one, and how an attempt that failed is forgotten. Mutable, local to one call of
`divide`; the same for every order of the input.
"""

from dataclasses import dataclass, field

from raytide.elastic.budget import LoadBudget, QuotaLedger, Shortfall
from raytide.elastic.model import CREATION_FORBIDDEN, UNSCHEDULABLE, Participant, ParticipantId, Pool, Shape, Stranger
from raytide.elastic.placement import PodShape, Room, Spot
from raytide.elastic.share import SCORE_BITS, Pods, Share, build_share

Placement = tuple[Pods, Spot, bool]
"""What was placed, where, and whether the room was free already."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody cannot have more; `reasons.py` says it in words."""

    kind: str
    """A reason of `model.py`."""
    needs: tuple[tuple[PodShape, int], ...] = ()
    """What has no room, by shape."""
    quota: str = ""
    shortfall: Shortfall | None = None
    count: int = 0
    """How many of its own instances are meant."""
    holder: ParticipantId | None = None
    """Who holds what it needs, and may not give."""


@dataclass(frozen=True, eq=False, slots=True)
class Guest:
    """Pods of strangers, and the room that this plan keeps for them."""

    of: Stranger
    pods: Pods
    is_short: bool
    """Whether the free room was not enough for all of them."""


@dataclass(eq=False, slots=True)
class State:
    """One plan in the making."""

    pool: Pool
    room: Room
    load: LoadBudget
    quotas: QuotaLedger
    shares: list[Share]
    refusals: dict[ParticipantId, Refusal] = field(default_factory=dict)
    contradicted: set[ParticipantId | str] = field(default_factory=set)
    guests: list[Guest] = field(default_factory=list)
    """In the order in which they were served."""

    def place(self, pods: Pods, count: int, *, is_free_now: bool = False) -> list[Placement]:
        """As many as fit, at most `count`; if `is_free_now`, none where others still have to go."""
        done: list[Placement] = []
        while len(done) < count:
            found = self.room.find(pods.pod, is_free_now=is_free_now)
            if found is None:
                break
            spot, is_now = found
            self.room.put(pods.pod, spot)
            pods.add(spot.name)
            done.append((pods, spot, is_now))
        self.load.spend_requests(pods.pod, len(done))
        return done

    def forget(self, placements: list[Placement]) -> None:
        """These were not placed after all."""
        for pods, spot, _ in reversed(placements):
            self.room.take_back(pods.pod, spot)
            pods.remove(spot.name)
            self.load.spend_requests(pods.pod, -1)

    def receive(self, who: Stranger) -> Pods:
        """Somebody else's pods without a node take the room that is free, unless they will not go there."""
        pods = Pods(self.room.pod(who.shape), {}, 0 if who.is_doubted else who.count)
        if self._settle(pods, pods.loose, is_free_now=True) and who.is_unschedulable:
            self.contradicted.add(who.name)
        self.guests.append(Guest(who, pods, is_short=pods.loose > 0))
        return pods

    def fill(self, share: Share) -> None:
        """Pods that it wants and that have no node take the room that is free; before it begins it has none to wait."""
        if share.size == 0 and share.of.is_gang:
            return
        for pods in share.all_pods():
            if pods.loose:
                placed = self._settle(pods, self._allowed(pods, share), is_free_now=True)
                if pods is share.instances and placed and pods.loose < share.of.unschedulable:
                    self.contradicted.add(share.of.id)

    def fill_late(self, pods: Pods, share: Share | None) -> None:
        """Whatever still has no node takes what pods leave, when all claims are served."""
        if pods.loose and (share is None or share.has_begun):
            self._settle(pods, pods.loose if share is None else self._allowed(pods, share))

    def _settle(self, pods: Pods, count: int, *, is_free_now: bool = False) -> int:
        placements = self.place(pods, min(count, pods.loose), is_free_now=is_free_now)
        pods.loose -= len(placements)
        pods.pending.extend(spot.name for _, spot, _ in placements)
        return len(placements)

    def _allowed(self, pods: Pods, share: Share) -> int:
        """How many of those without a node a quota lets come into being."""
        return max(0, pods.loose - self.refused(share)) if pods is share.instances else pods.loose

    def refused(self, share: Share) -> int:
        """How many of its instances get no node whatever room there is: by a quota, the API, or for reasons not known here."""
        if share.of.unplaceable:
            kind = CREATION_FORBIDDEN if share.of.is_forbidden else UNSCHEDULABLE
            self.refusals[share.of.id] = Refusal(kind, count=share.of.unplaceable)
            return share.of.unplaceable
        overdraft = self.quotas.overdraft(share.of.id, share.instances.pod) if share.uncreated else None
        if overdraft is None:
            return 0
        count, name, shortfall = overdraft
        self.refusals[share.of.id] = quota_refusal((name, shortfall))
        return min(count, share.uncreated)


def quota_refusal(refusal: tuple[str, Shortfall]) -> Refusal:
    """What a quota answered."""
    return Refusal("QuotaExceeded", quota=refusal[0], shortfall=refusal[1])


def begin(pool: Pool) -> State:
    """What there is, before anything is decided."""
    participants = sorted(pool.participants, key=lambda each: each.id)
    room = Room(pool.nodes, _shapes(pool, participants), pool.options.gpus)
    pods = {each.id: room.pod(each.shape) for each in participants}
    equals = sorted(participants, key=lambda each: (*_cost(each, room, pods[each.id]), each.created_at, each.id))
    rank_of = {each.id: rank for rank, each in enumerate(equals)}
    shares = [build_share(each, rank_of[each.id], room, pods[each.id]) for each in participants]
    load = LoadBudget(pool, room)
    for share in shares:
        _uncharge_impossible(share, room, load)
        _uncharge_unplaceable(share, load)
    return State(pool, room, load, QuotaLedger(pool, room), shares)


def _uncharge_impossible(share: Share, room: Room, load: LoadBudget) -> None:
    """Pods that no node can hold are counted by limits, as they exist; they must not keep everybody from growing (TJ:D5)."""
    if share.has_begun:
        for pods in share.all_pods():
            if pods.loose and not room.could_hold(pods.pod):
                load.spend_limits(pods.pod, -pods.loose)


def _uncharge_unplaceable(share: Share, load: LoadBudget) -> None:
    """The same for instances that get no node whatever room there is; those above the floor are taken back in this plan."""
    above = share.size - share.of.floor if share.of.is_scaling_enabled else 0
    staying = min(share.of.unplaceable, share.instances.loose) - min(share.of.wanted_in_vain, max(0, above))
    if staying > 0:
        load.spend_limits(share.instances.pod, -staying)


def _shapes(pool: Pool, participants: list[Participant]) -> list[Shape]:
    shapes = [each.shape for each in participants]
    shapes += [each.companion.shape for each in participants if each.companion is not None]
    shapes += [core.shape for each in participants for core in each.core]
    return shapes + [stranger.shape for stranger in pool.strangers]


def _cost(participant: Participant, room: Room, pod: PodShape) -> tuple[int, ...]:
    """GPUs, CPU and memory of one instance, with its part of what comes with it (TJ §3 row 4), in parts of 2^-64."""
    if participant.companion is None:
        return tuple(own << SCORE_BITS for own in pod.size)
    with_it, per = room.pod(participant.companion.shape).size, participant.companion.per
    pairs = zip(pod.size, with_it, strict=True)
    return tuple((own << SCORE_BITS) + (other << SCORE_BITS) // per for own, other in pairs)
