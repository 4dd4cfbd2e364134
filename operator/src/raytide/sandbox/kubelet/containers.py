"""What has become of one container so far?

Takes what happened to it (started, exited, cannot be started) and gives its next state as a new frozen value: waiting,
running or terminated, with the end before the last one, the count of restarts and the time of the next attempt. The
back-off rules of a kubelet live here: 10 s after the second end, doubling to 300 s, forgotten after 10 minutes of
running. Pure; used by lifecycle.py, which decides, and by status.py, which reports.
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
    """Not running, and why."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """Its main process lives."""

    started_at: datetime
    container_id: str = ""


@dataclass(frozen=True, slots=True)
class Terminated:
    """Its main process and everything it started are gone."""

    exit_code: int
    finished_at: datetime
    started_at: datetime | None = None
    signal: int = 0
    reason: str = ""
    message: str = ""
    container_id: str = ""

    @property
    def is_success(self) -> bool:
        """Exit code 0."""
        return self.exit_code == 0


State = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """One container through all its starts."""

    state: State
    last: Terminated | None = None
    restart_count: int = 0
    is_started: bool = False
    is_ready: bool = False
    image_id: str = ""
    retry_at: datetime | None = None
    """Not to be started before; None means at once."""
    backoff_s: float = 0.0
    backoff_since: datetime | None = None
    pull_backoff_s: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether its main process lives."""
        return isinstance(self.state, Running)

    @property
    def end(self) -> Terminated | None:
        """Its latest end, also while it waits for the next start; None before the first end and while it runs."""
        if isinstance(self.state, Running):
            return None
        return self.state if isinstance(self.state, Terminated) else self.last

    @property
    def has_ever_started(self) -> bool:
        """Whether a first start is behind it."""
        return not isinstance(self.state, Waiting) or self.last is not None

    def is_held_back(self, now: datetime) -> bool:
        """Whether its next start must wait."""
        return self.retry_at is not None and now < self.retry_at


def begun(
    record: ContainerRecord, running: Running, *, image_id: str, is_started: bool, is_ready: bool
) -> ContainerRecord:
    """Started; a start after an end is a restart, and moves the back-off on."""
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
    """Ended; the next start is held back when it ended too soon after an earlier one."""
    is_forgiven = _is_forgiven(record, end)
    return replace(
        record,
        state=end,
        is_ready=False,
        is_started=False,
        retry_at=None if is_forgiven or not record.backoff_s else end.finished_at + timedelta(seconds=record.backoff_s),
    )


def never_began(record: ContainerRecord, end: Terminated) -> ContainerRecord:
    """The runtime could not run its command: an end without a life, which counts for the back-off."""
    began = begun(record, Running(end.finished_at), image_id=record.image_id, is_started=False, is_ready=False)
    return exited(began, end)


def held_back(record: ContainerRecord) -> ContainerRecord:
    """An ended container that waits for its next start is shown as waiting, its end as the last state."""
    if not isinstance(record.state, Terminated):
        return record
    return replace(record, state=Waiting(CRASH_LOOP_BACK_OFF), last=record.state)


def cannot_pull(record: ContainerRecord, message: str, now: datetime) -> ContainerRecord:
    """No image of that name; the next try is held back as image pulls are."""
    delay_s = min(record.pull_backoff_s * 2 or INITIAL_BACKOFF_S, MAX_BACKOFF_S)
    return replace(_not_started(record, Waiting(ERR_IMAGE_PULL, message), now, delay_s), pull_backoff_s=delay_s)


def shown_pull_error(record: ContainerRecord, image: str, now: datetime) -> ContainerRecord:
    """ErrImagePull turns into ImagePullBackOff when it has been shown for a moment."""
    if not isinstance(record.state, Waiting) or record.state.reason != ERR_IMAGE_PULL or record.retry_at is None:
        return record
    if (record.retry_at - now).total_seconds() > record.pull_backoff_s - SHOW_PULL_ERROR_S:
        return record
    return replace(record, state=Waiting(IMAGE_PULL_BACK_OFF, f'Back-off pulling image "{image}"'))


def cannot_configure(record: ContainerRecord, reason: str, message: str, now: datetime) -> ContainerRecord:
    """Something it refers to is missing; tried again soon."""
    return _not_started(record, Waiting(reason, message), now, CONFIG_RETRY_S)


def backoff_message(record: ContainerRecord, container: str, pod: str) -> str:
    """What a kubelet says about a container that crashes again and again."""
    return f"back-off {go_duration(record.backoff_s)} restarting failed container={container} pod={pod}"


def is_newly_waiting(before: ContainerRecord, after: ContainerRecord, reason: str) -> bool:
    """Whether it has just begun to wait for that reason, which is worth an event."""
    return _waits_for(after) == reason != _waits_for(before)


def _waits_for(record: ContainerRecord) -> str | None:
    return record.state.reason if isinstance(record.state, Waiting) else None


def go_duration(seconds: float) -> str:
    """Whole seconds as Go prints them: 10s, 2m40s, 5m0s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _not_started(record: ContainerRecord, waiting: Waiting, now: datetime, delay_s: float) -> ContainerRecord:
    return replace(record, state=waiting, last=record.end, retry_at=now + timedelta(seconds=delay_s))


def _is_forgiven(record: ContainerRecord, end: Terminated) -> bool:
    since = record.backoff_since
    return since is not None and (end.finished_at - since).total_seconds() > FORGET_BACKOFF_AFTER_S


def _next_backoff(record: ContainerRecord, end: Terminated) -> float:
    if not record.backoff_s or _is_forgiven(record, end):
        return INITIAL_BACKOFF_S
    return min(record.backoff_s * 2, MAX_BACKOFF_S)
