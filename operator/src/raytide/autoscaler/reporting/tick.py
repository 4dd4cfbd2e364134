"""Result of one tick: its duration, its plan and what became of it.

Created by the loop after each tick; read by its listeners, which are the metrics, the log files and the event log. No
decision depends on it.
"""

from dataclasses import dataclass, field

from raytide.autoscaler.model import GcsState
from raytide.autoscaler.provider.provider import PatchResult
from raytide.autoscaler.state.snapshot import Answers, ReconcileResult


@dataclass(frozen=True, slots=True)
class Tick:
    """Result of one tick, for metrics and logs."""

    lasted_s: float
    plan: ReconcileResult | None = None
    """None: an input was missing, or a decision failed."""
    gcs: GcsState | None = None
    skipped: str = ""
    """Why nothing was decided, as a metric label; empty if there was a decision."""
    patch_result: PatchResult | None = None
    """None: there was nothing to write."""
    answers: Answers = field(default_factory=dict)
