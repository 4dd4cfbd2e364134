"""Log lines and check results of the operator's process and of kopf's restarts.

One constant or function per text. Constants are log lines: templates with the arguments that their docstring lists.
Functions return the text of a health check or of a cause. Called by the modules of this package; decides nothing.
"""

from collections.abc import Iterable
from typing import Final

# --- process -----------------------------------------------------------------------------------------------------------

STARTING: Final = "starting raytide %s, API server %s"
"""Version and server."""
STOPPING: Final = "received a stop signal, waiting for running passes"
STOPPED: Final = "shutdown complete"
CANNOT_LISTEN: Final = "cannot listen: %s"
"""Error with the address."""
NO_LEADER_ELECTION: Final = "leader election is off: run a single replica, or set --enable-leader-election"
API_UNAVAILABLE: Final = "API server %s does not respond, retrying every %.0f s: %s"
"""Server, interval and error."""
COMPONENT_FAILED: Final = "a component of the operator failed"
"""Logged with the traceback."""
EXITING: Final = "raytide exits, because a component failed: %r"
"""The first error."""

VARIABLE_WITHOUT_EFFECT: Final = "environment variable %s has no effect, see docs/compatibility.md"
"""Name."""
GATE_WITHOUT_EFFECT: Final = "feature gate %s has no effect, see docs/compatibility.md"
"""Name and value."""

# --- kinds -------------------------------------------------------------------------------------------------------------

LISTED: Final = "listed"
"""An optional informer is synced."""
NOT_LISTED: Final = "not listed yet"
"""An optional informer is not synced."""


def kind_not_listed(kind: str) -> str:
    """Its informer has not been synced, and there is no error."""
    return f"{kind} {NOT_LISTED}"


def kinds_served(served: Iterable[str], left_out: Iterable[str]) -> str:
    """Readiness check: the kinds that are reconciled, and why others are not."""
    return "; ".join([", ".join(served) or "none served", *left_out])


# --- kopf --------------------------------------------------------------------------------------------------------------

KOPF_ENDED: Final = "kopf ended"
"""Logged with the traceback."""
KOPF_RESTARTING: Final = "restarting kopf: %s"
"""One of the causes below."""
OTHER_KINDS: Final = "the API server serves other kinds than before"
THREAD_ENDED: Final = "it ended"
KOPF_NOT_STOPPED: Final = "kopf did not stop within %.0f s"
"""Seconds."""
LOOP_CLOSED: Final = "the event loop is closed"
SESSION_REJECTED: Final = "the API server rejected kopf's session, logging in again in %.0f s"
"""Delay."""
KOPFS_LINE: Final = "kopf (%s): %s"
"""Level and text of a line of kopf."""


def watch_behind(lag_s: float) -> str:
    """Kopf's watch lags behind the informer's."""
    return f"its watch is {lag_s:.0f} s behind"


def threads_not_stopped(count: int) -> str:
    """Too many: only a new process helps."""
    return f"{count} kopf threads did not stop"
