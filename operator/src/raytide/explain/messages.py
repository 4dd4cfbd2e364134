"""Sentences of explanations that no condition has: stages, notes, and the summary.

One function or constant per sentence. Holders and fixes are in diagnosis/catalogue.py beside their reasons; messages of conditions and of
the decision records are passed on unchanged. Pure; called by the modules of this package.
"""

from collections.abc import Sequence
from shlex import quote
from typing import Final, TypeVar

import msgspec

from raytide.diagnosis.render import counted
from raytide.explain.model import TRAININGJOB, Change, ClosedNodes, Effect, Field, Holding, Phase, Shortage, Size
from raytide.fairshare.algorithm.format_quantity import spell, spell_with_name

MAX_NAMED: Final = 5
"""Groups named in one sentence."""

# --- blockers ----------------------------------------------------------------------------------------------------------------


def terminating() -> str:
    """`Terminating`."""
    return "the object is being deleted"


def managed_by(controller: str) -> str:
    """`ManagedByOther`."""
    return f"spec.managedBy is {controller}: the operator ignores the object"


def not_reconciled(generation: int, seen: object) -> str:
    """`NotReconciled`; `seen` is the generation in the status, if it has one."""
    last = f"generation {seen} was the last one" if isinstance(seen, int) else "it has not reconciled any"
    return f"the operator has not reconciled generation {generation}; {last}"


def suspended(phase: str) -> str:
    """`Suspended`; the phase is that of raycluster/suspension.py."""
    return {
        "suspending": "the RayCluster is being suspended: its pods are deleted",
        "resuming": "the RayCluster is about to resume",
    }.get(phase, "the RayCluster is suspended and has no pods")


def group_suspended(group: str) -> str:
    """`GroupSuspended`."""
    return f"group {group} is suspended and has no pods"


JOB_SUSPENDED: Final = "the TrainingJob is suspended and has no pods"
AUTOSCALER_PAUSED: Final = "the autoscaler is paused: replicas of the spec apply, and the demand has no effect"


def replicas_clamped(replicas: int, maximum: int) -> str:
    """`ReplicasClamped`."""
    return f"{replicas} are requested; the maximum is {maximum}"


def head_not_ready(condition: str) -> str:
    """`HeadNotReady`; reason and message of the condition HeadPodReady, if it has any."""
    return f"the head pod is not ready, and workers wait for it{f' ({condition})' if condition else ''}"


def node_not_ready(node: str, *, exists: bool) -> str:
    """`NodeNotReady`."""
    return f"node {node} is not Ready" if exists else f"node {node} does not exist"


def pods_missing(missing: int, wanted: int) -> str:
    """`PodsMissing`."""
    return f"{missing} of {wanted} pods do not exist, and no condition has the reason"


def workers_starting(missing: int, wanted: int) -> str:
    """`WaitingForPods`."""
    return f"{missing} of {wanted} workers are not ready, without a known failure"


# --- stages ------------------------------------------------------------------------------------------------------------------


def demand(*, is_autoscaled: bool, unplaced: int, has_record: bool, is_head_down: bool) -> str:
    """What is known about the demand of a RayCluster."""
    if not is_autoscaled:
        return "not autoscaled: replicas of the spec are the demand"
    if not has_record:
        return "not known: there is no valid decision of the autoscaler"
    if is_head_down:
        return "not known: Ray's head node does not answer the autoscaler"
    if not unplaced:
        return "all of it has a place"
    has = "has" if unplaced == 1 else "have"
    return f"{counted(unplaced, 'request')} of tasks, actors or placement groups {has} no place"


def job_demand(low: int, high: int) -> str:
    """The bounds of a TrainingJob."""
    return f"{low} to {high} trainers" if low != high else counted(high, "trainer")


def job_decision(at: str, *, has_record: bool, may_have_pods: bool) -> str:
    """What the sharing pass decided about a TrainingJob."""
    if not has_record:
        return "the sharing pass has recorded no decision" + ("" if may_have_pods else ", and the job is not admitted")
    since = f", unchanged since {at}" if at else ""
    return f"the sharing pass's decision{since}" if may_have_pods else f"not admitted by the sharing pass{since}"


DECIDED_BY_SPEC: Final = "replicas of the spec"
DECIDED_BY_SPEC_PAUSED: Final = "replicas of the spec; the autoscaler is paused"
DECIDED_BY_SPEC_YET: Final = "replicas of the spec; the autoscaler has not decided yet"
DECIDED_BY_RAY: Final = "replicas of the spec, which Ray's autoscaler writes"


def decided_by_record(at: str) -> str:
    """The autoscaler's decision, and since when it is unchanged."""
    return f"the autoscaler's decision{f', unchanged since {at}' if at else ''}"


def wanted(groups: Sequence[tuple[str, int]]) -> str:
    """Wanted pods by group or role."""
    named = ", ".join(f"{name} {number}" for name, number in groups[:MAX_NAMED])
    more = len(groups) - MAX_NAMED
    return named + (f" and {more} more groups" if more > 0 else "") if groups else "no worker groups"


def pods(ready: int, *, head: str = "") -> str:
    """Ready pods, and the head's state if the workload has a head."""
    return f"{ready} ready" + (f"; head {head}" if head else "")


def pods_by_status(available: int, ready: int) -> str:
    """The numbers of the status, where pods cannot be read."""
    return f"{available} running, {ready} ready, as of the status"


def nodes(nodes: int, unplaced: int) -> str:
    """Nodes of the pods."""
    count = f"on {nodes} node{'' if nodes == 1 else 's'}"
    return f"{count}; {unplaced} without a node" if unplaced else count


NODES_UNKNOWN: Final = "not known: pods cannot be read"

# --- notes -------------------------------------------------------------------------------------------------------------------


def rays_autoscaler(version: str) -> str:
    """Ray's own autoscaler runs, which writes no reasons into the object."""
    which = f" (spec.rayVersion {version})" if version else ""
    return f"Ray's own autoscaler runs{which}: its reasons are in `ray status` in the head pod"


def unsupported(message: str) -> str:
    """The condition Unsupported."""
    return f"without effect: {message}"


def draining(group: str, message: str) -> str:
    """Nodes that leave."""
    return f"group {group}: {message}"


def at_maximum(group: str, maximum: int) -> str:
    """A group that has all it may have."""
    return f"group {group} is at maxReplicas {maximum}"


def job_at_maximum(maximum: int) -> str:
    """A TrainingJob that has all it may have."""
    return f"it is at max-instance {maximum}"


SCALING_DISABLED: Final = "spec.scaling.enabled is false: its size does not follow the free capacity"


def failed_pod_kept(pod: str) -> str:
    """A failed worker that is kept."""
    return f"failed pod {pod} is kept for inspection and does not count"


# --- summary -----------------------------------------------------------------------------------------------------------------


def workers_ready(size: Size) -> str:
    """How much of a RayCluster is there."""
    if size.phase is Phase.SUSPENDED:
        return f"{counted(size.needed, 'worker')} when resumed"
    return f"{size.ready} of {size.wanted} workers are ready" if size.wanted else "no workers are wanted"


def job_size(size: Size, minimum: int) -> str:
    """How much of a TrainingJob is there, and between which bounds."""
    if size.phase is Phase.SUSPENDED:
        return f"{counted(size.needed, 'trainer')} when resumed"
    bounds = f"{minimum} to {size.maximum}" if minimum != size.maximum else str(minimum)
    return f"{size.ready} of {size.needed} trainers run, its bounds are {bounds}"


def job_ended(size: Size, message: str) -> str:
    """A TrainingJob that has ended."""
    at = f" at {size.since}" if size.since else ""
    wants = " and wants no more pods" if size.phase is Phase.FAILED else ""
    return f"{size.phase.value}{at}{wants}{f': {message}' if message else ''}"


def fit_no_group(shapes: str) -> str:
    """The cause NoFittingGroup."""
    return f"{shapes} fit no group"


def group_at_maximum(group: str, maximum: str) -> str:
    """The cause MaxReached."""
    return f"group {group} is at maxReplicas {maximum}"


def never(number: str, cause: str) -> str:
    """The first permanent cause; the number of requests or pods, or empty."""
    return f"{number} can never run: {cause}" if number else f"Can never run: {cause}"


def waits(number: str, cause: str) -> str:
    """The first transient cause; the number of requests or pods, or empty."""
    verb = "waits" if number.startswith("1 ") else "wait"
    return f"{number} {verb}: {cause}" if number else f"Waits: {cause}"


# --- capacity ----------------------------------------------------------------------------------------------------------------

MAX_NODES: Final = 3
"""Nodes or taints that one text names."""
NODE_SIZE: Final = "the size of the nodes"
LARGER_NODE: Final = "add a larger node, or lower the requests: ending pods does not help on today's nodes"


def short_of(each: Shortage) -> str:
    """How much of a resource is needed and how much is free; what matters on one node if a pod does not fit there."""
    if each.is_impossible:
        return f"needs {_spelled(each, each.each)} on one node; the largest has {spell(each.resource, each.largest)}"
    text = f"needs {_spelled(each, each.needed)}; {spell(each.resource, each.free)} of {spell(each.resource, each.total)} are free"
    if each.most_free < each.each:
        text += f", at most {spell(each.resource, each.most_free)} on one node, where a pod needs {spell(each.resource, each.each)}"
    return text


def short_in_sum(shortages: Sequence[Shortage]) -> str:
    """The first resource that is short, and the names of the others."""
    others = "".join(f" and {each.resource}" for each in shortages[1:])
    return short_of(shortages[0]) + (f";{others.removeprefix(' and')} short, too" if others else "")


def more_capacity(shortages: Sequence[Shortage]) -> str:
    """What to do where nodes admit the pods, and no change of another workload is known."""
    names = " and ".join(each.resource for each in shortages)
    return f"add nodes with free {names}, lower the request, or end pods that use it"


def no_node_admits(closed: ClosedNodes) -> str:
    """Why no node admits the pods, whatever is free there."""
    if not (closed.cordoned or closed.not_ready or closed.tainted):
        return (
            f"no node has the labels {closed.selector}" if closed.selector else "no node matches the required affinity"
        )
    return f"no node takes the pods: {closed_by(closed)}"


def closed_by(closed: ClosedNodes) -> str:
    """What keeps the pods from the nodes that match; where none matches, the field that asks for others."""
    found = [
        *(
            f"node {node} has the taint {taint}, which the pods do not tolerate"
            for node, taint in _some(closed.tainted)
        ),
        *(f"node {node} is cordoned" for node in _some(closed.cordoned)),
        *(f"node {node} is not Ready" for node in _some(closed.not_ready)),
    ]
    of_template = f"nodeSelector {closed.selector}" if closed.selector else "the required affinity"
    return ", ".join(found) or f"{of_template} of the pod template"


def open_nodes(closed: ClosedNodes) -> str:
    """What to do so that a node admits the pods."""
    taints = dict.fromkeys(taint for _, taint in closed.tainted)
    found = [
        *(f"add a toleration for the taint {taint} to the pod template" for taint in _some(tuple(taints))),
        *([f"kubectl uncordon {' '.join(_some(closed.cordoned))}"] if closed.cordoned else []),
        *(f"repair the node: kubectl describe node {node}" for node in _some(closed.not_ready)),
    ]
    if found:
        return ", or ".join(found)
    wanted = f"add nodes with the labels {closed.selector}" if closed.selector else "add nodes that match the affinity"
    return f"{wanted}, or change nodeSelector or affinity of the pod template"


_T = TypeVar("_T")


def _some(names: Sequence[_T]) -> Sequence[_T]:
    return names[:MAX_NODES]


def held(shortages: Sequence[Shortage]) -> str:
    """Who holds what is short, largest first; empty if no workload does."""
    return "; ".join(
        f"{', '.join(_holding(each, holder) for holder in each.holders)}"
        + (f" and {counted(each.more_holders, 'more holder')}" if each.more_holders else "")
        for each in shortages
        if each.holders and not each.is_impossible
    )


def used_by(holder: str, resource: str, users: Sequence[Holding]) -> str:
    """The ResourceQuota, and who requests what it limits."""
    return f"{holder}; in its namespace {', '.join(_of_holding(resource, each) for each in users)}"


def _holding(each: Shortage, holder: Holding) -> str:
    return _of_holding(each.resource, holder)


def _of_holding(resource: str, holder: Holding) -> str:
    note = f" ({holder.note})" if holder.note else ""
    return f"{holder.namespace}/{holder.name} ({holder.kind}) {spell_with_name(resource, holder.amount)}{note}"


def _spelled(each: Shortage, amount: int) -> str:
    return spell_with_name(each.resource, amount)


# --- changes -----------------------------------------------------------------------------------------------------------------


MAX_NAMED_EFFECTS: Final = 6
"""Workloads that one change names."""
NO_FIX: Final = "In a simulation, a smaller size of one holder alone is not enough."
"""No single RayCluster or TrainingJob frees what is short."""
TOO_LARGE_TO_SIMULATE: Final = (
    "No fix is simulated: the cluster has too many pods, nodes and jobs to answer within a second."
)


def change(of: Change) -> str:
    """What would help, and what the workloads have then."""
    first, *others = (_has_then(of, effect) for effect in of.effects[:MAX_NAMED_EFFECTS])
    more = len(of.effects) - MAX_NAMED_EFFECTS
    named = [*others, *([f"{more} more workloads have another size"] if more > 0 else [])]
    return f"{_change(of)}: then {first}{''.join(f', {each}' for each in named)}"


def _change(of: Change) -> str:
    whose = f"{of.kind} {of.namespace}/{of.name}"
    match of.field:
        case Field.MIN_INSTANCE:
            return f"lower min-instance from {of.before} to {of.after}"
        case Field.SUSPEND:
            return f"suspend {whose}, which ends {counted(of.before, 'pod')}"
        case Field.MAX_INSTANCE:
            bounds = "max-instance and min-instance" if of.lowers_minimum else "max-instance"
            owners = f", which is below the {of.minimum} that its owner asks for" if of.lowers_minimum else ""
            return f"lower {bounds} of {whose} to {of.after}{owners}"
        case Field.NODES:
            return f"add {counted(of.after, 'node')} like {of.name}"
        case Field.MAX_REPLICAS:
            return f"lower maxReplicas of {f'group {of.group} of ' if of.group else ''}{whose} to {of.after}"
    return f"scale {f'group {of.group} of ' if of.group else ''}{whose} from {of.before} to {of.after}"


def _has_then(of: Change, effect: Effect) -> str:
    name = f"{effect.namespace}/{effect.name}"
    noun = "trainer" if effect.kind == TRAININGJOB else "worker"
    if effect is of.effects[0]:
        return f"{name} has {counted(effect.having, noun)}"
    return f"{name} {effect.having} instead of {effect.without}"


def command_of(of: Change) -> str:
    """The command that makes the change; empty for nodes."""
    if of.field is Field.NODES:
        return ""
    where = f"-n {quote(of.namespace)}"
    if of.field is Field.REPLICAS:
        size = quote(f"{of.group}={of.after}") if of.group else str(of.after)
        return f"raytide scale raycluster/{quote(of.name)} {size} {where}"
    if of.field is Field.MAX_REPLICAS:
        field = {"op": "add", "path": f"/spec/workerGroupSpecs/{of.group_index}/maxReplicas", "value": of.after}
        patch = msgspec.json.encode([field]).decode()
        return f"kubectl patch raycluster {quote(of.name)} {where} --type json -p {quote(patch)}"
    fields = [of.field, *([Field.MIN_INSTANCE] if of.lowers_minimum else [])]
    spec = {"suspend": True} if of.field is Field.SUSPEND else {"trainer": dict.fromkeys(fields, of.after)}
    patch = msgspec.json.encode({"spec": spec}).decode()
    return f"kubectl patch {of.kind.lower()} {quote(of.name)} {where} --type merge -p {quote(patch)}"


# --- transfers ---------------------------------------------------------------------------------------------------------------

ANOTHER: Final = "another workload"
"""One that the caller may not read, or that is gone."""


def gave(sizes: tuple[int, int], receivers: Sequence[str], *, is_any_hidden: bool) -> str:
    """A TrainingJob was scaled down for others; `receivers` are kinds with names."""
    before, after = sizes
    others = [*receivers, *([ANOTHER] if is_any_hidden or not receivers else [])]
    return f"gave {before - after} of {counted(before, 'trainer')} to {' and '.join(others)}"


def received(giver: str, sizes: tuple[int, int]) -> str:
    """A workload has capacity of a TrainingJob that was scaled down; without a giver, the sizes are its own."""
    before, after = sizes
    if not giver:
        return f"grew from {before} to {counted(after, 'trainer')} with capacity of {ANOTHER}"
    return f"received capacity of {giver}, which gave {before - after} of {counted(before, 'trainer')}"
