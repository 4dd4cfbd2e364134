"""Where do these requests fit, and which nodes must be launched for them?

Takes runs of equal requests and a fleet of node classes, returns a plan: which nodes take what, which types to launch
and what is left over. It is Ray's greedy packing, the best node first, filled as full as it goes (AS §2.3, §2.4), on
classes of equal nodes: a class is filled and scored once, a result is kept until a run it draws on holds less than it
takes, and a winner wins as often in a row as nothing changes (AS §7.4). Changes nothing; called by schedule.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count as counting

from raytide.autoscaler.model import OnProgress, unwatched
from raytide.autoscaler.scheduling.contest import Candidate, Contest, Market, Pool
from raytide.autoscaler.scheduling.fleet import Fate, Fill, Fleet, Free, Move, Node, NodeClass, Plan
from raytide.autoscaler.scheduling.shapes import Run, Shape


def pack(fleet: Fleet, runs: Sequence[Run], book: int, market: Market, on_progress: OnProgress = unwatched) -> Plan:
    """Place the runs on the fleet's nodes, then on new ones; what remains is left over (AS §2.3).

    `on_progress` is called for every line of nodes that is looked at and for every one that wins.
    """
    plan = Plan(book, [run.shape for run in runs])
    contest = Contest(runs, book, market, is_exact=fleet.is_exact)
    for tier in _tiers(fleet, plan):
        for members in tier:
            on_progress()
            contest.admit(members[0].home, members[0].position, members=members)
        while (winner := contest.best()) is not None:
            on_progress()
            _fill_existing(contest, winner, plan)
    if contest.is_open:
        _launch(contest, market, plan, on_progress)
    plan.left = [Run(shape, n) for shape, n in zip(contest.shapes, contest.counts, strict=True) if n]
    return plan


def _tiers(fleet: Fleet, plan: Plan) -> Iterable[list[list[Node]]]:
    """Existing nodes that compete, alike ones together; one tier after another.

    Ray has one tier, and of pending nodes in the same state it tries only the first, whatever it holds already. We
    fill running nodes first, then pending ones, so that asking again finds the launched where they were wanted, and last
    those that may never come.
    """
    running: list[list[Node]] = []
    pending: list[list[Node]] = []
    waiting: list[list[Node]] = []
    for one in fleet.classes():
        if one.fate is Fate.ENDS and not fleet.is_exact:
            continue
        if not one.traits.is_running:
            (waiting if one.fate is Fate.WAITS else pending).append(one.members)
        elif not fleet.is_exact or _fits_any(one.free[plan.book], plan.shapes):
            running.append(one.members)
        else:
            plan.dull.append(one)
    if not fleet.is_exact:
        return running, pending, waiting
    return ([*running, *_by_state(pending, plan.book, fleet)],)


def _by_state(pending: list[list[Node]], book: int, fleet: Fleet) -> list[list[Node]]:
    """Pending nodes in lines of equal state, as Ray's cache tells them apart."""

    def state(node: Node) -> tuple[object, ...]:
        home = node.home
        return (home.traits, home.free[book], home.labels, fleet.marks.get(node))

    lines: dict[tuple[object, ...], list[Node]] = {}
    for node in sorted((node for members in pending for node in members), key=_position):
        lines.setdefault(state(node), []).append(node)
    return list(lines.values())


def _fits_any(free: Free, shapes: Sequence[Shape]) -> bool:
    """Whether there is room for one of them, labels apart (AS:S-17)."""
    return not shapes or any(all(free[r] >= amount for r, amount in shape.needs) for shape in reversed(shapes))


def _fill_existing(contest: Contest, winner: Candidate, plan: Plan) -> None:
    """Let a line of existing nodes win as often as it would."""
    members, first, placed = winner.members, winner.first, winner.home.placed[plan.book]
    end = first + 1
    while end < len(members) and members[end].home.placed[plan.book] is placed:
        end += 1
    times = contest.repetitions(winner, end - first)
    plan.moves.append(Move(members[first : first + times], winner.fill))
    winner.first = first = first + times
    if first == len(members):
        contest.take(winner, times, has_more=False)
        return
    winner.position = members[first].position
    is_same = members[first].home.placed[plan.book] is placed
    contest.take(winner, times, has_more=is_same)
    if not is_same:
        winner.home = members[first].home
        contest.enter(winner)


def _launch(contest: Contest, market: Market, plan: Plan, on_progress: OnProgress) -> None:
    """Launch the best type, fill its node, and so on (AS:S-20); a replica begun is launched to its end (B-8)."""
    numbers = counting()
    pools: dict[NodeClass, Pool] = {}
    hosts_of: dict[Pool, list[Candidate]] = {}
    for pool in market.pools:
        homes = [home for home in (pool.first, pool.home) if home is not None]
        pools.update((home, pool) for home in homes)
        if pool.room >= pool.type.num_of_hosts:
            hosts_of[pool] = [contest.admit(home, next(numbers), pool=pool) for home in homes]
    while (winner := contest.best()) is not None or _begin_anew(contest, hosts_of, plan):
        on_progress()
        if winner is None:
            continue
        pool = pools[winner.home]
        plan.is_tied = plan.is_tied or contest.is_tied(winner)
        if not pool.begun and market.room is not None and market.room < pool.type.num_of_hosts:
            contest.dismiss(winner)
            continue
        winner.position, fill = next(numbers), winner.fill
        if pool.type.num_of_hosts == 1:
            room = pool.room if market.room is None else min(pool.room, market.room)
            times = contest.repetitions(winner, room)
            _reserve(pool, market, times)
            contest.take(winner, times, has_more=pool.room > 0)
        else:
            times = _launch_hosts(contest, winner, pool, market, hosts_of[pool])
        plan.launches.append(Move([Node(winner.home) for _ in range(times)], fill))
    for pool in market.pools:
        plan.launches += _rest_of(pool, plan)


def _begin_anew(contest: Contest, hosts_of: Mapping[Pool, Iterable[Candidate]], plan: Plan) -> bool:
    """End the replicas that are begun where the first host differs from the others; whether there was one.

    Nothing needs what is left of them, but a host of another replica may be needed: each TPU slice has one head.
    """
    ended = [pool for pool in hosts_of if pool.first is not None and pool.begun]
    for pool in ended:
        plan.launches += _rest_of(pool, plan)
        pool.begun, pool.is_first_due = 0, False
        for host in hosts_of[pool]:
            contest.dismiss(host)
            if pool.supply(host.home):
                contest.enter(host)
    return bool(ended)


def _rest_of(pool: Pool, plan: Plan) -> list[Move]:
    return [Move([Node(home) for _ in range(count)], Fill([], home.free[plan.book])) for home, count in pool.rest()]


def _launch_hosts(contest: Contest, winner: Candidate, pool: Pool, market: Market, hosts: Iterable[Candidate]) -> int:
    """Let hosts of the replica that is begun win, or begin one; how many. What its other hosts are worth may change."""
    times = contest.repetitions(winner, pool.supply(winner.home))
    if not pool.begun:
        _reserve(pool, market, pool.type.num_of_hosts)
        pool.begin()
    pool.use(winner.home, times)
    contest.take(winner, times, has_more=False)
    for host in hosts:
        contest.dismiss(host)
        if pool.supply(host.home):
            contest.enter(host)
    return times


def _reserve(pool: Pool, market: Market, nodes: int) -> None:
    pool.room -= nodes
    if market.room is not None:
        market.room -= nodes


def _position(node: Node) -> int:
    return node.position
