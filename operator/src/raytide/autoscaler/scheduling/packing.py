"""Bin packing of demand onto existing and new nodes.

Takes runs of equal requests and a fleet of node classes. Returns a plan: which nodes take what, which types to launch
and what is left over. It is Ray's greedy packing, best node first, each filled as far as possible (AS §2.3, §2.4), on
classes of equal nodes: a class is filled and scored once, its result is kept until a run it draws on holds less than it
takes, and a winner repeats as long as nothing changes (AS §7.4). It changes no state; called by session.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count as counting

from raytide.autoscaler.model import OnProgress, unwatched
from raytide.autoscaler.scheduling.node_classes import (
    BinFill,
    Move,
    Node,
    NodeClass,
    NodeClasses,
    NodeDisposition,
    Plan,
)
from raytide.autoscaler.scheduling.resource_shapes import Run
from raytide.autoscaler.scheduling.scoring import Candidate, LaunchBudget, LaunchPool, NodeScorer


def pack(
    fleet: NodeClasses, runs: Sequence[Run], book: int, budget: LaunchBudget, on_progress: OnProgress = unwatched
) -> Plan:
    """Place the runs on the fleet's nodes, then on new ones; the rest is left over (AS §2.3).

    `on_progress` is called for every group of equal nodes examined and for every winner.
    """
    plan = Plan(book, [run.shape for run in runs])
    pack_tiers(plan, NodeScorer(runs, book, budget), _tiers(fleet), budget, on_progress)
    return plan


def pack_tiers(
    plan: Plan,
    scorer: NodeScorer,
    tiers: Iterable[Iterable[Sequence[Node]]],
    budget: LaunchBudget,
    on_progress: OnProgress = unwatched,
) -> None:
    """Let the existing nodes compete, one tier after another, then new ones; complete the plan."""
    for tier in tiers:
        for members in tier:
            on_progress()
            scorer.add_candidate(members[0].node_class, members[0].position, members=members)
        while (winner := scorer.best()) is not None:
            on_progress()
            _fill_existing(scorer, winner, plan)
    if scorer.is_open:
        _launch(scorer, budget, plan, on_progress)
    plan.left = [Run(shape, n) for shape, n in zip(scorer.shapes, scorer.counts, strict=True) if n]


def _tiers(fleet: NodeClasses) -> Iterable[list[list[Node]]]:
    """Competing existing nodes in groups of equal ones; one tier after another.

    Running nodes are filled first, then pending ones, so that a repeated decision uses launched nodes as intended, and last
    those that wait for capacity. (Ray has one tier.)
    """
    running: list[list[Node]] = []
    pending: list[list[Node]] = []
    waiting: list[list[Node]] = []
    for one in fleet.classes():
        if one.disposition is NodeDisposition.TO_TERMINATE:
            continue
        if one.traits.is_running:
            running.append(one.members)
        else:
            (waiting if one.disposition is NodeDisposition.WAITING else pending).append(one.members)
    return running, pending, waiting


def _fill_existing(scorer: NodeScorer, winner: Candidate, plan: Plan) -> None:
    """Let a group of existing nodes win as often as it would."""
    members, first, placed = winner.members, winner.first, winner.node_class.placed[plan.book]
    end = first + 1
    while end < len(members) and members[end].node_class.placed[plan.book] is placed:
        end += 1
    times = scorer.repetitions(winner, end - first)
    plan.moves.append(Move(members[first : first + times], winner.fill))
    winner.first = first = first + times
    if first == len(members):
        scorer.take(winner, times, has_more=False)
        return
    winner.position = members[first].position
    is_same = members[first].node_class.placed[plan.book] is placed
    scorer.take(winner, times, has_more=is_same)
    if not is_same:
        winner.node_class = members[first].node_class
        scorer.rescore(winner)


def _launch(scorer: NodeScorer, budget: LaunchBudget, plan: Plan, on_progress: OnProgress) -> None:
    """Repeatedly launch the best type and fill its node (AS:S-20); a begun replica is launched completely (B-8)."""
    numbers = counting()
    pools: dict[NodeClass, LaunchPool] = {}
    hosts_of: dict[LaunchPool, list[Candidate]] = {}
    for pool in budget.pools:
        homes = [node_class for node_class in (pool.first, pool.node_class) if node_class is not None]
        pools.update((node_class, pool) for node_class in homes)
        if pool.remaining >= pool.type.num_of_hosts:
            hosts_of[pool] = [scorer.add_candidate(node_class, next(numbers), pool=pool) for node_class in homes]
    while (winner := scorer.best()) is not None or _begin_anew(scorer, hosts_of, plan):
        on_progress()
        if winner is None:
            continue
        pool = pools[winner.node_class]
        plan.is_tied = plan.is_tied or scorer.is_tied(winner)
        if not pool.begun and budget.remaining < pool.type.num_of_hosts:
            scorer.remove(winner)
            continue
        winner.position, fill = next(numbers), winner.fill
        if pool.type.num_of_hosts == 1:
            times = scorer.repetitions(winner, min(pool.remaining, budget.remaining))
            _reserve(pool, budget, times)
            scorer.take(winner, times, has_more=pool.remaining > 0)
        else:
            times = _launch_hosts(scorer, winner, pool, budget, hosts_of[pool])
        plan.launches.append(Move([Node(winner.node_class) for _ in range(times)], fill))
    for pool in budget.pools:
        plan.launches += _rest_of(pool, plan)


def _begin_anew(scorer: NodeScorer, hosts_of: Mapping[LaunchPool, Iterable[Candidate]], plan: Plan) -> bool:
    """Complete begun replicas whose first host differs from the others; return whether there was one.

    No demand needs their remaining hosts, but it may need a host of another replica: each TPU slice has one head.
    """
    ended = [pool for pool in hosts_of if pool.first is not None and pool.begun]
    for pool in ended:
        plan.launches += _rest_of(pool, plan)
        pool.begun, pool.is_first_due = 0, False
        for host in hosts_of[pool]:
            scorer.remove(host)
            if pool.supply(host.node_class):
                scorer.rescore(host)
    return bool(ended)


def _rest_of(pool: LaunchPool, plan: Plan) -> list[Move]:
    return [
        Move([Node(node_class) for _ in range(count)], BinFill([], node_class.free[plan.book]))
        for node_class, count in pool.rest()
    ]


def _launch_hosts(
    scorer: NodeScorer, winner: Candidate, pool: LaunchPool, budget: LaunchBudget, hosts: Iterable[Candidate]
) -> int:
    """Let hosts of the begun replica win, or begin one; return how many. The scores of its other hosts may change."""
    times = scorer.repetitions(winner, pool.supply(winner.node_class))
    if not pool.begun:
        _reserve(pool, budget, pool.type.num_of_hosts)
        pool.begin()
    pool.use(winner.node_class, times)
    scorer.take(winner, times, has_more=False)
    for host in hosts:
        scorer.remove(host)
        if pool.supply(host.node_class):
            scorer.rescore(host)
    return times


def _reserve(pool: LaunchPool, budget: LaunchBudget, nodes: int) -> None:
    pool.remaining -= nodes
    budget.remaining -= nodes
