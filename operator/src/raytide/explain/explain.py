"""Explanation of why a RayCluster or a TrainingJob is not larger, from objects alone.

Takes what the caller could read and the time, and returns an `Explanation`: the same diagnosis as in the conditions and the
decision records, in one order for both kinds, with holder and fix. What stops everything comes first, then what can never
run, then what waits, each in the order of the stages. Bounded, deterministic, no I/O. Called by `raytide why` and `raytide top`
(SC:S21).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from raytide.api.base_model import faults_of
from raytide.api.conditions import cut
from raytide.api.meta import Manifest
from raytide.diagnosis.catalogue import CANNOT_BE_PARSED, REPLICAS_CLAMPED
from raytide.diagnosis.kubernetes_messages import quota_requests, unschedulable_for
from raytide.diagnosis.model import Diagnosis, Workload
from raytide.diagnosis.render import counted
from raytide.explain import messages
from raytide.explain.findings import Findings, blocker
from raytide.explain.holders import closed_nodes, requested_in, shortages
from raytide.explain.model import (
    MAX_BLOCKERS,
    MAX_EVENTS,
    MAX_GROUPS,
    MAX_MESSAGE,
    MAX_PODS,
    RAYCLUSTER,
    STAGES,
    Blocker,
    ClusterPods,
    Explanation,
    GroupLine,
    Need,
    Objects,
    Phase,
    Shortage,
    StageLine,
    Verdict,
)

_ABOUT_CAPACITY: Final = frozenset(
    {
        "Unschedulable",
        "InsufficientResources",
        "InsufficientGPU",
        "Fragmented",
        "Unsatisfiable",
        "HigherPriority",
        "HeldByRankZero",
        "CapacityReserved",
        "CoolingDown",
        "QuotaExceeded",
    }
)
UNSCHEDULABLE: Final = "Unschedulable"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
_ABOUT_NODES: Final = frozenset({UNSCHEDULABLE, "Unsatisfiable"})
_ABOUT_REQUESTS: Final = frozenset({"MaxReached", "NoFittingGroup", "NodeBusy", "TopologyUnmet"})
"""Reasons whose count is one of requests, and not of workers."""


def explain(objects: Objects, now: datetime) -> Explanation:
    """The explanation of one workload at that time."""
    try:
        found = _findings(objects, now)
    except ValidationError as error:
        found = _unparsable(objects, "; ".join(map(str, faults_of(error))))
    metadata = objects.obj.get("metadata") or {}
    known = () if found.size.phase is Phase.SUCCEEDED else _with_holders(found, objects)
    blockers = tuple(map(_bounded, _sorted(known)))
    groups = _important_first(found.groups)
    verdict = _verdict(blockers)
    return Explanation(
        kind=objects.kind,
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        at=now,
        size=found.size,
        verdict=verdict,
        summary=_summary(found.summary, found.size.phase, blockers),
        there=found.summary,
        stages=_marked(found.stages, blockers),
        blockers=blockers[:MAX_BLOCKERS],
        groups=groups[:MAX_GROUPS],
        pods=tuple(replace(pod, message=cut(pod.message, MAX_MESSAGE)) for pod in found.pods[:MAX_PODS]),
        events=() if verdict is Verdict.NOTHING_MISSING else objects.events[:MAX_EVENTS],
        notes=tuple(cut(note, MAX_MESSAGE) for note in found.notes[:MAX_BLOCKERS]),
        unreadable=objects.unreadable,
        resizes=found.resizes,
        more_blockers=max(0, len(blockers) - MAX_BLOCKERS),
        more_groups=max(0, len(groups) - MAX_GROUPS),
        more_pods=max(0, len(found.pods) - MAX_PODS),
    )


def with_blockers(explanation: Explanation, blockers: tuple[Blocker, ...]) -> Explanation:
    """The explanation with what has become known of its blockers."""
    summary = _summary(explanation.there, explanation.size.phase, blockers)
    return replace(explanation, blockers=blockers, summary=summary)


def lacks_capacity(explanation: Explanation) -> bool:
    """Whether nodes and pods of the cluster, in `Objects.cluster`, would tell who holds what it lacks."""
    return any(each.reason in _ABOUT_CAPACITY for each in explanation.blockers)


def with_notes(explanation: Explanation, notes: Mapping[tuple[str, str, str], str]) -> Explanation:
    """The explanation with what is known of holders, by kind, namespace and name."""

    def noted(each: Blocker) -> Blocker:
        short = tuple(
            replace(
                one,
                holders=tuple(
                    replace(holder, note=notes.get((holder.kind, holder.namespace, holder.name), ""))
                    for holder in one.holders
                ),
            )
            for one in each.shortages
        )
        held = cut(messages.held(short), MAX_MESSAGE)
        return replace(each, shortages=short, holder=held or each.holder) if short else each

    return with_blockers(explanation, tuple(map(noted, explanation.blockers)))


def _with_holders(found: Findings, objects: Objects) -> tuple[Blocker, ...]:
    """The blockers; those of pods that no node admits with what closes the nodes, the first other one about capacity with who holds it."""
    cluster, metadata = objects.cluster, objects.obj.get("metadata") or {}
    if cluster is None:
        return found.blockers
    own = (objects.kind, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
    blockers = [_with_closed_nodes(each, cluster, found.needs) for each in found.blockers]
    open_ = (i for i, each in enumerate(blockers) if each is found.blockers[i] and each.reason in _ABOUT_CAPACITY)
    first = next(open_, None)
    if first is not None and (short := shortages(cluster, found.needs, own)):
        blockers[first] = _with_shortages(blockers[first], short)
    return tuple(_with_quota_users(each, cluster, own[1]) for each in blockers)


def _with_quota_users(blocker: Blocker, cluster: ClusterPods, namespace: str) -> Blocker:
    """The blocker; one about a ResourceQuota with who requests in the namespace what it limits."""
    if blocker.reason != QUOTA_EXCEEDED:
        return blocker
    limited = blocker.parameters.get("resource") or next(iter(quota_requests(blocker.message)), "")
    resource = limited.removeprefix("requests.")
    users = requested_in(cluster, namespace, resource)
    return replace(blocker, holder=messages.used_by(blocker.holder, resource, users)) if users else blocker


def _with_closed_nodes(blocker: Blocker, cluster: ClusterPods, needs: Sequence[Need]) -> Blocker:
    """The blocker itself if a node admits the pods of its group."""
    if blocker.reason not in _ABOUT_NODES:
        return blocker
    closed = closed_nodes(cluster, [need for need in needs if need.group == blocker.group] or needs)
    if closed is None:
        return blocker
    message, holder, fix = messages.no_node_admits(closed), messages.closed_by(closed), messages.open_nodes(closed)
    return replace(blocker, message=message, holder=holder, fix=fix)


def _with_shortages(blocker: Blocker, short: tuple[Shortage, ...]) -> Blocker:
    impossible = tuple(each for each in short if each.is_impossible)
    if impossible:  # who holds the rest does not matter
        fix = blocker.fix if blocker.is_permanent else messages.LARGER_NODE
        return replace(blocker, shortages=impossible, is_permanent=True, holder=messages.NODE_SIZE, fix=fix)
    lacks = unschedulable_for(blocker.message) if blocker.reason == UNSCHEDULABLE else {}
    fix = messages.more_capacity(short) if "resource" in lacks and "volume" not in lacks else blocker.fix
    return replace(blocker, shortages=short, holder=messages.held(short) or blocker.holder, fix=fix)


def _findings(objects: Objects, now: datetime) -> Findings:
    """Imports the kind at hand only: building the models of a kind takes a tenth of the time of `raytide why`."""
    if objects.kind == RAYCLUSTER:
        from raytide.api.raycluster import RayCluster  # noqa: PLC0415
        from raytide.explain.raycluster import explain_raycluster  # noqa: PLC0415

        return explain_raycluster(RayCluster.parse(objects.obj), objects, now)
    from raytide.api.trainingjob import TrainingJob  # noqa: PLC0415
    from raytide.explain.trainingjob import explain_trainingjob  # noqa: PLC0415

    return explain_trainingjob(TrainingJob.parse(_with_readable_conditions(objects.obj)), objects, now)


def _with_readable_conditions(obj: Manifest) -> Manifest:
    """The object without conditions of another form: a status stored under an older CRD may have any."""
    status = obj.get("status")
    if not isinstance(status, dict):
        return obj
    conditions = status.get("conditions")
    readable = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    return {**obj, "status": {**status, "conditions": readable}}


def _unparsable(objects: Objects, faults: str) -> Findings:
    """The operator cannot parse it either: the condition Invalid has the same faults, if it was reconciled."""
    metadata: Manifest = objects.obj.get("metadata") or {}
    of = Workload(objects.kind, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
    return Findings(blockers=(blocker(Diagnosis(CANNOT_BE_PARSED, message=faults), of),))


# --- order -------------------------------------------------------------------------------------------------------------------


def _sorted(blockers: Iterable[Blocker]) -> tuple[Blocker, ...]:
    """What stops everything, what can never run, what waits; equal reasons of one group once."""
    unique: dict[tuple[str, str], Blocker] = {}
    for each in blockers:
        known = unique.get((each.group, each.reason))
        unique[each.group, each.reason] = each if known is None else _merged(known, each)
    return tuple(
        sorted(
            unique.values(),
            key=lambda each: (not each.stops_all, not each.is_permanent, STAGES.index(each.stage)),
        )
    )


def _bounded(each: Blocker) -> Blocker:
    return replace(
        each,
        message=cut(each.message, MAX_MESSAGE),
        holder=cut(each.holder, MAX_MESSAGE),
        fix=cut(each.fix, MAX_MESSAGE),
    )


def _merged(one: Blocker, other: Blocker) -> Blocker:
    """One of two blockers with the same reason and group: the later stage is closer to the cause and has its message."""
    if STAGES.index(other.stage) >= STAGES.index(one.stage):
        one, other = other, one
    return replace(one, since=min(filter(None, (one.since, other.since)), default=""), count=one.count or other.count)


def _important_first(groups: Sequence[GroupLine]) -> tuple[GroupLine, ...]:
    """The groups in their order; if there are more than are shown, those with a reason first."""
    if len(groups) <= MAX_GROUPS:
        return tuple(groups)
    return tuple(sorted(groups, key=lambda group: not group.reason))


def _marked(stages: Sequence[StageLine], blockers: Sequence[Blocker]) -> tuple[StageLine, ...]:
    blocked = {each.stage for each in blockers}
    return tuple(replace(line, is_blocked=line.stage in blocked) for line in stages)


def _verdict(blockers: Sequence[Blocker]) -> Verdict:
    if any(each.is_permanent for each in blockers):
        return Verdict.CAN_NEVER_RUN
    return Verdict.WAITS if blockers else Verdict.NOTHING_MISSING


# --- summary -----------------------------------------------------------------------------------------------------------------


def _summary(there: str, phase: Phase, blockers: Sequence[Blocker]) -> str:
    """What can never run, what waits, and how much is there: the permanent cause does not hide behind a transient one."""
    if phase in (Phase.SUCCEEDED, Phase.FAILED):
        return cut(f"{there}.", MAX_MESSAGE)
    permanent = [each for each in blockers if each.is_permanent]
    transient = [each for each in blockers if not each.is_permanent]
    parts = [there]
    for these, sentence in ((permanent, messages.never), (transient, messages.waits)):
        if these:
            parts.append(_first_blocker(these, sentence))
    return cut(". ".join(filter(None, parts)) + ".", MAX_MESSAGE)


def _first_blocker(blockers: Sequence[Blocker], sentence: Callable[[str, str], str]) -> str:
    """The first of them, with its number of requests or pods, and how many other causes there are."""
    first, more = blockers[0], len(blockers) - 1
    is_about_pods = first.group and first.reason != REPLICAS_CLAMPED  # else it counts neither
    noun = "request" if first.reason in _ABOUT_REQUESTS else "pod" if is_about_pods else ""
    number = counted(first.count, noun) if first.count and noun else ""
    return sentence(number, _cause(first) + (f", and {more} more" if more else ""))


def _cause(first: Blocker) -> str:
    """The cause in words: for requests without a place in as few as possible, as they are read most often."""
    if first.reason == "NoFittingGroup" and (shapes := first.parameters.get("shapes")):
        return messages.fit_no_group(shapes)
    if first.reason == "MaxReached" and (maximum := first.parameters.get("maximum")):
        return messages.group_at_maximum(first.group, maximum)
    group = f"group {first.group}: " if first.group else ""
    if first.shortages:
        return group + messages.short_in_sum(first.shortages)
    return f"{group}{first.reason}" + (f" ({first.message})" if first.message else "")
