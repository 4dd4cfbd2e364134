"""State machine of one container: waiting, running, terminated.

Takes what happened to the container (started, exited, could not start) and returns its next record as a new frozen
value: state, last termination, restart count and time of the next attempt. It implements the kubelet's back-off: the
first restart is immediate, the second waits 10 s, then the delay doubles up to 300 s; 10 minutes of running reset it.
Pure; used by compute_actions.py, which decides, and by status.py, which reports.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

INITIAL_BACKOFF_S: Final = 10.0
MAX_BACKOFF_S: Final = 300.0
FORGET_BACKOFF_AFTER_S: Final = 2 * MAX_BACKOFF_S
CONFIG_RETRY_S: Final = 5.0
SHOW_PULL_ERROR_S: Final = 2.0
"""How long ErrImagePull is shown before it becomes ImagePullBackOff."""

COMPLETED: Final = "Completed"
ERROR: Final = "Error"
START_ERROR: Final = "StartError"
STATUS_UNKNOWN: Final = "ContainerStatusUnknown"
CONTAINER_CREATING: Final = "ContainerCreating"
POD_INITIALIZING: Final = "PodInitializing"
CRASH_LOOP_BACK_OFF: Final = "CrashLoopBackOff"
ERR_IMAGE_PULL: Final = "ErrImagePull"
IMAGE_PULL_BACK_OFF: Final = "ImagePullBackOff"
ERR_IMAGE_NEVER_PULL: Final = "ErrImageNeverPull"
CONFIG_ERROR: Final = "CreateContainerConfigError"

SIGKILL_EXIT_CODE: Final = 137


@dataclass(frozen=True, slots=True)
class Waiting:
    """State of a container that does not run, with the reason."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """State of a container whose main process is alive."""

    started_at: datetime
    container_id: str = ""


@dataclass(frozen=True, slots=True)
class Terminated:
    """State of a container whose main process and everything it started have ended."""

    exit_code: int
    finished_at: datetime
    started_at: datetime | None = None
    signal: int = 0
    reason: str = ""
    message: str = ""
    container_id: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0


State = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """State of one container across its restarts."""

    state: State
    last: Terminated | None = None
    restart_count: int = 0
    is_started: bool = False
    is_ready: bool = False
    image_id: str = ""
    retry_at: datetime | None = None
    """Earliest time of the next start; None means at once."""
    backoff_s: float = 0.0
    backoff_since: datetime | None = None
    pull_backoff_s: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether the main process is alive."""
        return isinstance(self.state, Running)

    @property
    def end(self) -> Terminated | None:
        """The latest termination, also while waiting for a restart; None while running and before the first one."""
        if isinstance(self.state, Running):
            return None
        return self.state if isinstance(self.state, Terminated) else self.last

    @property
    def has_ever_started(self) -> bool:
        """Whether the container has been started at least once."""
        return not isinstance(self.state, Waiting) or self.last is not None

    def is_held_back(self, now: datetime) -> bool:
        """Whether the next start must wait for `retry_at`."""
        return self.retry_at is not None and now < self.retry_at


def begun(
    record: ContainerRecord, running: Running, *, image_id: str, is_started: bool, is_ready: bool
) -> ContainerRecord:
    """Record a start; a start after a termination is a restart and advances the back-off."""
    end = record.end
    if end is None:
        return replace(
            record, state=running, image_id=image_id, is_started=is_started, is_ready=is_ready, retry_at=None
        )
    return replace(
        record,
        state=running,
        last=end,
        restart_count=record.restart_count + 1,
        image_id=image_id,
        is_started=is_started,
        is_ready=is_ready,
        retry_at=None,
        backoff_s=_next_backoff(record, end),
        backoff_since=running.started_at,
        pull_backoff_s=0.0,
    )


def exited(record: ContainerRecord, end: Terminated) -> ContainerRecord:
    """Record a termination; the next start waits for the back-off, unless the container ran long enough to reset it."""
    resets_backoff = _resets_backoff(record, end)
    return replace(
        record,
        state=end,
        is_ready=False,
        is_started=False,
        retry_at=None
        if resets_backoff or not record.backoff_s
        else end.finished_at + timedelta(seconds=record.backoff_s),
    )


def never_began(record: ContainerRecord, end: Terminated) -> ContainerRecord:
    """Record that the runtime could not run the command: a start and a termination, which count for the back-off."""
    began = begun(record, Running(end.finished_at), image_id=record.image_id, is_started=False, is_ready=False)
    return exited(began, end)


def held_back(record: ContainerRecord) -> ContainerRecord:
    """Turn a terminated container that waits for a restart into a waiting one, its termination into the last state."""
    if not isinstance(record.state, Terminated):
        return record
    return replace(record, state=Waiting(CRASH_LOOP_BACK_OFF), last=record.state)


def cannot_pull(record: ContainerRecord, message: str, now: datetime) -> ContainerRecord:
    """Record a failed image pull; the image pull back-off delays the next try."""
    delay_s = min(record.pull_backoff_s * 2 or INITIAL_BACKOFF_S, MAX_BACKOFF_S)
    return replace(_not_started(record, Waiting(ERR_IMAGE_PULL, message), now, delay_s), pull_backoff_s=delay_s)


def shown_pull_error(record: ContainerRecord, image: str, now: datetime) -> ContainerRecord:
    """Turn ErrImagePull into ImagePullBackOff after `SHOW_PULL_ERROR_S` seconds."""
    if not isinstance(record.state, Waiting) or record.state.reason != ERR_IMAGE_PULL or record.retry_at is None:
        return record
    if (record.retry_at - now).total_seconds() > record.pull_backoff_s - SHOW_PULL_ERROR_S:
        return record
    return replace(record, state=Waiting(IMAGE_PULL_BACK_OFF, f'Back-off pulling image "{image}"'))


def cannot_configure(record: ContainerRecord, reason: str, message: str, now: datetime) -> ContainerRecord:
    """Record that a start is not possible, e.g. for a missing reference; retried after `CONFIG_RETRY_S` seconds."""
    return _not_started(record, Waiting(reason, message), now, CONFIG_RETRY_S)


def backoff_message(record: ContainerRecord, container: str, pod: str) -> str:
    """Message of the waiting state CrashLoopBackOff, in the kubelet's words."""
    return f"back-off {go_duration(record.backoff_s)} restarting failed container={container} pod={pod}"


def is_newly_waiting(before: ContainerRecord, after: ContainerRecord, reason: str) -> bool:
    """Whether the container has just begun to wait for `reason`, so that an event is due."""
    return _waits_for(after) == reason != _waits_for(before)


def _waits_for(record: ContainerRecord) -> str | None:
    return record.state.reason if isinstance(record.state, Waiting) else None


def go_duration(seconds: float) -> str:
    """Whole seconds as Go prints them: 10s, 2m40s, 5m0s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _not_started(record: ContainerRecord, waiting: Waiting, now: datetime, delay_s: float) -> ContainerRecord:
    return replace(record, state=waiting, last=record.end, retry_at=now + timedelta(seconds=delay_s))


def _resets_backoff(record: ContainerRecord, end: Terminated) -> bool:
    since = record.backoff_since
    return since is not None and (end.finished_at - since).total_seconds() > FORGET_BACKOFF_AFTER_S


def _next_backoff(record: ContainerRecord, end: Terminated) -> float:
    if not record.backoff_s or _resets_backoff(record, end):
        return INITIAL_BACKOFF_S
    return min(record.backoff_s * 2, MAX_BACKOFF_S)
