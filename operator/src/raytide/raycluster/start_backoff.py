"""Backoff of pods that end without having been ready.

A pod that ended keeps its place, and stays readable with its log, until the backoff after the pods before it in that place is over:
the first is replaced at once, the next after 1, 2, 4 … 300 seconds. New pods carry the number in an annotation, so that another
operator continues the count; `FailedStarts` keeps it only from the end of a pod to the create of the next. A pod that has been
ready, or another spec, resets it. Takes views of pods and times; used by the reconciler and by plan.py (FD:RC3-3).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from raytide.api import constants
from raytide.api.actions import Create, Outcome, Result
from raytide.api.conditions import parse_timestamp
from raytide.api.meta import PODS, Key
from raytide.api.pod import PodView, parse_index
from raytide.api.raycluster import RayCluster
from raytide.raycluster.desired_replicas import CLOCK_GRAIN, CLOCK_TOLERANCE
from raytide.raycluster.manifests.recreate_hash import recreate_hash
from raytide.runtime.backoff import backoff_s

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 300.0
REMEMBERED_S: Final = 2 * LONGEST_WAIT_S
"""For how long the count of a pod that is gone is kept for its successor."""
MAX_DIGITS: Final = 6
_TAKEN: Final = frozenset({Result.DONE, Result.UNKNOWN})


def start_waits(
    pods: Iterable[PodView], spec_hash: str, now: datetime, unready_nodes: Collection[str] = ()
) -> dict[str, float]:
    """Name -> seconds for which a pod that ended without having been ready is not replaced.

    Not for pods that are terminating, or whose node is away: these give up their place in any case.
    """
    waits = {}
    for pod in pods:
        if pod.is_terminating or pod.node_name in unready_nodes or not pod.failed_start:
            continue
        wait_s = backoff_s(_count_before(pod, spec_hash), first_s=FIRST_WAIT_S, longest_s=LONGEST_WAIT_S)
        ended_at = _ended_at(pod, now)
        if wait_s and ended_at is not None:
            left_s = (ended_at + timedelta(seconds=wait_s) + CLOCK_GRAIN - now).total_seconds()
            if left_s > 0:
                waits[pod.name] = left_s
    return waits


class _Place(NamedTuple):
    """The place of a pod that ended: its group, and its replica or, for a replica of one pod, itself."""

    group: str
    name: str


@dataclass(slots=True)
class _Count:
    count: int
    seen_at: float


@dataclass(slots=True)
class _ClusterCounts:
    """The counts of one uid and spec of a cluster."""

    uid: str
    spec_hash: str
    by_place: dict[_Place, _Count] = field(default_factory=dict)


class FailedStarts:
    """Counts of pods that ended without having been ready, until their successors are created.

    - At most one count per pod or replica that existed, for `REMEMBERED_S` after it was last observed.
    - Another uid or spec of the cluster starts with empty state.
    """

    def __init__(self) -> None:
        self._by_key: dict[Key, _ClusterCounts] = {}

    def record_pods(self, cluster: RayCluster, pods: Iterable[PodView], now: float) -> None:
        """Record the pods that have ended, at `now` (monotonic seconds)."""
        ended = [pod for pod in pods if pod.failed_start]
        if not ended and cluster.key not in self._by_key:
            return
        uid, spec_hash = cluster.metadata.uid, recreate_hash(cluster)
        counts = self._by_key.get(cluster.key)
        if counts is None or (counts.uid, counts.spec_hash) != (uid, spec_hash):
            counts = _ClusterCounts(uid, spec_hash)
        for place, found in list(counts.by_place.items()):
            if now - found.seen_at > REMEMBERED_S:
                del counts.by_place[place]
        for pod in ended:
            counts.by_place[_place(pod)] = _Count(_count_before(pod, spec_hash) + 1, now)
        if counts.by_place:
            self._by_key[cluster.key] = counts
        else:
            self._by_key.pop(cluster.key, None)

    def record_outcomes(self, key: Key, outcomes: Iterable[Outcome]) -> None:
        """Drop the counts that created pods carry."""
        counts = self._by_key.get(key)
        if counts is None:
            return
        for place, count in _created(outcomes).items():
            taken = next((p for p, c in counts.by_place.items() if p.group == place.group and c.count == count), None)
            if taken is not None:
                del counts.by_place[taken]

    def counts(self, key: Key) -> Mapping[str, tuple[int, ...]]:
        """By group, the counts for new pods, the largest first."""
        counts = self._by_key.get(key)
        found: dict[str, list[int]] = {}
        for place, each in counts.by_place.items() if counts is not None else ():
            found.setdefault(place.group, []).append(each.count)
        return {group: tuple(sorted(each, reverse=True)) for group, each in found.items()}

    def spec_hash(self, key: Key) -> str:
        """The hash of the spec, if pods have ended under it; else empty."""
        counts = self._by_key.get(key)
        return counts.spec_hash if counts is not None else ""

    def forget(self, key: Key) -> None:
        """Drop the state of a deleted cluster."""
        self._by_key.pop(key, None)


def _created(outcomes: Iterable[Outcome]) -> dict[_Place, int]:
    """The places that creates filled, with the count that their pods carry."""
    found = {}
    for outcome in outcomes:
        action = outcome.action
        if isinstance(action, Create) and action.resource == PODS and outcome.result in _TAKEN:
            metadata = action.manifest["metadata"]
            count = _parsed(metadata.get("annotations", {}).get(constants.FAILED_STARTS_ANNOTATION, ""))[0]
            if count:
                replica = metadata.get("labels", {}).get(constants.REPLICA_NAME_LABEL, "")
                found[_Place(action.group, replica or action.name)] = count
    return found


def _place(pod: PodView) -> _Place:
    return _Place(constants.HEAD_GROUP if pod.is_head else pod.group, pod.replica_name or pod.name)


def _count_before(pod: PodView, spec_hash: str) -> int:
    """How many pods in a row ended in the pod's place before it, under this spec."""
    count, made_for = _parsed(pod.failed_starts)
    return count if made_for == spec_hash else 0


def _parsed(value: str) -> tuple[int, str]:
    count, _, spec_hash = value.partition(" ")
    return parse_index(count, most_digits=MAX_DIGITS) or 0, spec_hash


def _ended_at(pod: PodView, now: datetime) -> datetime | None:
    """When it ended, at the earliest its creation, which the API server dates; a time in the future is ignored."""
    container = pod.ended_container
    texts = (pod.ended_at, container.finished_at if container else "", pod.creation_timestamp)
    times = [time for text in texts if text and (time := parse_timestamp(text))]
    return max((time for time in times if time <= now + CLOCK_TOLERANCE), default=None)
