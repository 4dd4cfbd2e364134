"""How long may an instance stay where it is in its life?

Takes what is seen of an instance (`Stage`) and for how long, gives its status in the words of Ray's instance manager
(AS §3.1, §3.4): the limits are Ray's own, and a few shorter ones that look at pods (B-16). The only memory is `Timers`,
a frozen value of monotonic moments at which something was first seen; with an empty one every status is the same, only
limits start anew (D12). Pure; used by instances.py and limits.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from raytide.autoscaler.model import Status


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Limits in seconds; all are strict: at the limit nothing has happened yet."""

    request_s: float = 600.0
    """Asked for, and no pod."""
    request_retries: int = 3
    """How often that may happen again before the request counts as failed."""
    allocate_s: float = 3600.0
    """A pod without a Ray node, for whatever reason."""
    stop_request_s: float = 300.0
    """Asked to drain, and neither refused nor draining: then it runs on."""
    terminate_s: float = 300.0
    """Told to end, and still there."""
    stopped_s: float = 90.0
    """The Ray node is dead and its pod is not: the container may start another."""
    vanished_s: float = 120.0
    """The GCS forgot a node whose pod lives on: after its own restart it hears from it again."""
    warn_s: float = 90.0
    """On the way out for so long that it is worth a word."""
    capacity_s: float = 8.0
    """A pod that no node can take, or that is gated, where no node autoscaler adds a node for it (SC:S2)."""
    answer_s: float = 15.0
    """Until a node autoscaler whose events can be read has said its first word: it looks every ten seconds."""
    node_s: float = 900.0
    """A pod for which a node autoscaler adds a node: as long as Cluster Autoscaler itself waits for a machine."""
    schedule_s: float = 120.0
    """A pod that no scheduler has looked at."""
    pull_s: float = 3600.0
    """A pod on a node whose images are pulled or whose volumes are mounted."""
    initialize_s: float = 3600.0
    """A pod with an init container that has not finished; each that finishes starts the clock anew."""
    broken_s: float = 300.0
    """A pod whose image, configuration or program does not work (SC:S13)."""
    register_s: float = 300.0
    """A pod whose Ray container runs, and whose Ray node does not register (SC:S13)."""
    silent_s: float = 120.0
    """Pods asked for, and neither made nor refused."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "TimeLimits":
        """As the variables say; what is no whole number, or negative, is the default (AS §1.3).

        Ray has one limit for all that comes before a Ray node: pulls and init containers follow it unless they are set.
        """
        given = {
            name: int(words)
            for name, variable in VARIABLES.items()
            if (words := environ.get(variable, "").strip()).isascii() and words.isdigit() and len(words) <= MAX_DIGITS
        }
        rays = given.get("allocate_s", cls().allocate_s)
        return replace(cls(pull_s=rays, initialize_s=rays), **given)


MAX_DIGITS: Final = 9
VARIABLES: Final[Mapping[str, str]] = {
    "request_s": "RAY_AUTOSCALER_RECONCILE_REQUEST_STATUS_TIMEOUT_S",
    "request_retries": "RAY_AUTOSCALER_RECONCILE_MAX_NUM_RETRY_REQUEST_TO_ALLOCATE",
    "allocate_s": "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S",
    "stop_request_s": "RAY_AUTOSCALER_RECONCILE_RAY_STOP_REQUESTED_STATUS_TIMEOUT_S",
    "warn_s": "RAY_AUTOSCALER_RECONCILE_TRANSIENT_STATUS_WARN_INTERVAL_S",
    "capacity_s": "RAYTIDE_AUTOSCALER_UNSCHEDULABLE_TIMEOUT_S",
    "answer_s": "RAYTIDE_AUTOSCALER_NODE_ANSWER_TIMEOUT_S",
    "node_s": "RAYTIDE_AUTOSCALER_NODE_TIMEOUT_S",
    "schedule_s": "RAYTIDE_AUTOSCALER_SCHEDULE_TIMEOUT_S",
    "pull_s": "RAYTIDE_AUTOSCALER_PULL_TIMEOUT_S",
    "initialize_s": "RAYTIDE_AUTOSCALER_INIT_TIMEOUT_S",
    "broken_s": "RAYTIDE_AUTOSCALER_BROKEN_TIMEOUT_S",
    "register_s": "RAYTIDE_AUTOSCALER_REGISTER_TIMEOUT_S",
}
"""The environment variable of each limit that can be set from outside."""

DEFAULT_LIMITS: Final = TimeLimits()


class Stage(StrEnum):
    """What is seen of an instance, without any history but the Ray node it once had."""

    UNPLACED = "UNPLACED"
    """A pod that no node of Kubernetes has taken yet."""
    STARTING = "STARTING"
    """A pod on a node, and no Ray node yet."""
    VANISHED = "VANISHED"
    """A pod whose Ray node the GCS no longer lists."""
    RUNNING = "RUNNING"
    DRAIN_ASKED = "DRAIN_ASKED"
    """Its Ray node runs, and was asked to drain."""
    DRAINING = "DRAINING"
    DEAD = "DEAD"
    """Its pod is there, its Ray node is dead."""
    LEAVING = "LEAVING"
    """Its pod is being deleted, or is named to be, or has ended, or belongs to a group that is gone."""


NO_RAY_NODE: Final = frozenset({Stage.UNPLACED, Stage.STARTING})


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often the container of a pod that was restarted most often was, and when it was seen to be."""

    count: int
    last_s: float | None = None
    """None: what was there at first sight happened at a time nobody knows."""
    before_s: float | None = None
    """The one before."""

    def is_crash_loop(self, now_s: float, patience_s: float) -> bool:
        """Whether it was restarted again within the patience: once is no loop, whatever the reason was."""
        return self.before_s is not None and now_s - self.before_s <= patience_s


NO_RESTARTS: Final = Restarts(0)


def next_restarts(old: Restarts | None, count: int, now_s: float) -> Restarts:
    """The same while nothing was restarted; `old` is None for a pod that is seen for the first time."""
    if old is None:
        return Restarts(count)
    if count == old.count:
        return old
    if count < old.count:  # what was restarted most often is done
        return replace(old, count=count)
    return Restarts(count, now_s, now_s if count > old.count + 1 else old.last_s)


@dataclass(frozen=True, slots=True)
class Stay:
    """Since when one instance has been where it is."""

    stage: Stage
    since_s: float
    node_id: str = ""
    """The Ray node it has or had."""
    joined_s: float | None = None
    """When its Ray node was seen to register; None if it was there from the start."""
    step: str = ""
    """Of its start-up, while there is no Ray node: another one is progress and starts the clock anew (startup.py)."""
    restarts: Restarts = NO_RESTARTS
    """Of its containers, while there is no Ray node."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One pod asked for and not there yet."""

    since_s: float
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Deaths:
    """Pods of a group that ended before their Ray node registered, since one last did."""

    count: int
    last_s: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Timers:
    """All that is remembered from tick to tick; losing it delays things and changes nothing else."""

    stays: Mapping[str, Stay] = field(default_factory=dict)
    """By instance id."""
    asks: Mapping[str, tuple[Ask, ...]] = field(default_factory=dict)
    """By group, the oldest first: pods that come answer the oldest (AS §3.3 a)."""
    stalled_s: Mapping[str, float] = field(default_factory=dict)
    """By group that waits for pods: when one came last, or when the waiting began."""
    came_s: Mapping[str, float] = field(default_factory=dict)
    """By group, when a pod of it was last seen for the first time."""
    deaths: Mapping[str, Deaths] = field(default_factory=dict)
    """By group: what a crash loop leaves behind where pods are never restarted but replaced."""


def next_stay(
    old: Stay | None, stage: Stage, node_id: str, now_s: float, step: str = "", *, restarts: Restarts = NO_RESTARTS
) -> Stay:
    """The same stay while nothing changed, else a new one that begins now.

    A Ray node the GCS forgot was dying (then it is dead) or is lost for the moment (VANISHED); another Ray node in the
    same pod is a restarted raylet, and begins anew.
    """
    if stage in NO_RAY_NODE and old is not None and old.node_id:
        is_dying = old.stage in (Stage.DEAD, Stage.DRAINING)
        stage, node_id, step = (Stage.DEAD if is_dying else Stage.VANISHED), old.node_id, ""
    if old is not None and (old.stage, old.node_id, old.step) == (stage, node_id, step):
        return old if old.restarts == restarts else replace(old, restarts=restarts)
    joined_s = None if old is None else old.joined_s
    if stage is Stage.RUNNING and old is not None and old.node_id != node_id:
        joined_s = now_s
    return Stay(stage, now_s, node_id, joined_s, step, restarts)


def paused(stay: Stay, now_s: float) -> Stay:
    """The same stay while the head is away: no limit runs for what only a head could change."""
    is_waiting = stay.stage in (Stage.STARTING, Stage.VANISHED, Stage.DEAD)
    return replace(stay, since_s=now_s) if is_waiting else stay


def status_of(stay: Stay, now_s: float, limits: TimeLimits) -> Status:
    """The status of an instance that has a pod, or is a Ray node without one (AS §3.3 f, §3.4 i, j)."""
    age_s = now_s - stay.since_s
    match stay.stage:
        case Stage.UNPLACED | Stage.STARTING:
            return Status.ALLOCATION_TIMEOUT if age_s > limits.allocate_s else Status.ALLOCATED
        case Stage.VANISHED:
            return Status.RAY_STOPPED if age_s > limits.vanished_s else Status.ALLOCATED
        case Stage.RUNNING:
            return Status.RAY_RUNNING
        case Stage.DRAIN_ASKED:
            return Status.RAY_RUNNING if age_s > limits.stop_request_s else Status.RAY_STOP_REQUESTED
        case Stage.DRAINING:
            return Status.RAY_STOPPING
        case Stage.DEAD:
            return Status.RAY_STOPPED
        case Stage.LEAVING:
            return Status.TERMINATION_FAILED if age_s > limits.terminate_s else Status.TERMINATING


def must_end(stay: Stay, now_s: float, limits: TimeLimits) -> bool:
    """Whether its pod is of no use any more and nobody has ordered its end (AS §3.4 l)."""
    status = status_of(stay, now_s, limits)
    if stay.stage is Stage.DEAD:
        return now_s - stay.since_s > limits.stopped_s
    return status in (Status.ALLOCATION_TIMEOUT, Status.RAY_STOPPED)


def next_asks(old: tuple[Ask, ...], count: int, now_s: float) -> tuple[Ask, ...]:
    """The requests that are open now: fewer than before means that the oldest were answered."""
    kept = old[max(0, len(old) - count) :]
    return kept + (Ask(now_s),) * (count - len(kept))


def ask_again(ask: Ask, now_s: float, limits: TimeLimits) -> tuple[Status, Ask]:
    """The status of a request, and the request as it stands from now on (AS §3.4 j)."""
    if now_s - ask.since_s <= limits.request_s:
        return Status.REQUESTED, ask
    if ask.tries > limits.request_retries:
        return Status.ALLOCATION_FAILED, ask
    return Status.QUEUED, Ask(now_s, ask.tries + 1)
