"""Upscaling mode: which launches may be requested now.

Takes the scheduler's decision and returns the launches for this tick. `Default` and `Aggressive` set no limit, not even
Ray's ten (B-11); with `Conservative` a group has at most as many launching as running nodes, at least one (AS:R-40,
AS:C-5). What `minReplicas` and `request_resources()` need is launched at once (AS V-2). Pure; called by decide.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from raytide.autoscaler.model import COUNTABLE, Instance, NodeType, Status
from raytide.autoscaler.scheduling.fallback import FallbackResult, Scheduler


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of one tick."""

    now: Mapping[str, int]
    """By type, in nodes; whole replicas."""
    held_back: Mapping[str, int] = field(default_factory=dict)
    """By type, launches deferred until earlier ones are running."""


def launches(choice: FallbackResult, schedule: Scheduler, *, is_conservative: bool) -> Launches:
    """The part of the decision's launches to request now."""
    planned = choice.reply.launches
    if not is_conservative or not planned:
        return Launches(dict(planned))
    at_once = schedule(replace(choice.question, tasks=(), gangs=(), idle_timeout_s=None)).launches
    kinds = {node_type.name: node_type for node_type in choice.question.types}
    now = {
        name: min(count, max(at_once.get(name, 0), _may_launch(kinds[name], choice.instances)))
        for name, count in planned.items()
    }
    return Launches(
        {name: count for name, count in now.items() if count},
        {name: count - now[name] for name, count in planned.items() if count > now[name]},
    )


def _may_launch(node_type: NodeType, instances: tuple[Instance, ...]) -> int:
    """How many more nodes may be launching, in whole replicas."""
    mine = [i for i in instances if i.node_type == node_type.name and i.status in COUNTABLE]
    running = sum(i.status in (Status.RAY_RUNNING, Status.RAY_STOP_REQUESTED) for i in mine)
    hosts = node_type.num_of_hosts
    replicas = max(1, running // hosts) - -(-(len(mine) - running) // hosts)
    return max(0, replicas) * hosts
