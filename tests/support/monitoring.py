"""What is wrong with a PromQL expression of the chart: metrics, labels and values that no scrape has."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from raytide.api.actions import Result
from raytide.api.autoscaler_decision import LIMIT_REASONS
from raytide.api.constants import LEADER_LEASE, WAITING_FOR_PODS
from raytide.api.pod_failure import Cause
from raytide.api.trainingjob_constants import ROLES
from raytide.controller.reconcile_loop import ERROR_REASONS
from raytide.raycluster.worker_samples import DESIRED, READY
from raytide.trainingjob.metrics import DOWN, REASONS, STATES, UP
from support.exported_metrics import exported
from support.promql import grouping_labels, selectors

CHART = Path(__file__).parents[2] / "helm" / "raytide"
TARGET_LABELS = frozenset({"namespace", "job", "instance", "pod"})
"""Labels that Prometheus adds to the samples of a target that the Prometheus operator has found."""
VALUES: Mapping[tuple[str, str], frozenset[str]] = {
    ("raycluster_workers", "state"): frozenset({DESIRED, READY}),
    ("raycluster_missing_workers", "reason"): frozenset({*Cause, WAITING_FOR_PODS}),
    ("raycluster_scaling_limited", "reason"): LIMIT_REASONS,
    ("trainingjob_instances", "state"): frozenset(STATES),
    ("trainingjob_instances", "role"): frozenset(ROLES),
    ("trainingjob_scale_total", "reason"): REASONS,
    ("trainingjob_resizes_total", "direction"): frozenset({UP, DOWN}),
    ("trainingjob_scale_total", "direction"): frozenset({UP, DOWN}),
    ("raytide_reconcile_errors_total", "reason"): frozenset(ERROR_REASONS),
    ("raytide_writes_total", "result"): frozenset({*(result.value for result in Result), "conflict"}),
    ("raytide_autoscaler_skipped_ticks_total", "why"): frozenset({"pods", "kubernetes", "gone", "bug"}),
    ("leader_election_master_status", "name"): frozenset({LEADER_LEASE}),
}
"""The values of labels with a closed list."""


def target_labels() -> frozenset[str]:
    """The labels of targets, with those that the PodMonitor copies from head pods."""
    text = (CHART / "templates" / "podmonitor.yaml").read_text()
    (copied,) = [yaml.safe_load(line)["podTargetLabels"] for line in text.splitlines() if "podTargetLabels" in line]
    return TARGET_LABELS | {label.replace(".", "_").replace("/", "_") for label in copied}


def faults(expression: str) -> Iterator[str]:
    """What the expression names and no scrape has."""
    known, of_targets = exported(), target_labels()
    usable = set(of_targets)
    for selector in selectors(expression):
        labels = known.get(selector.metric)
        if labels is None:
            yield f"{selector.metric}: no such metric"
            continue
        usable |= labels
        for label, values in selector.values.items():
            if label not in labels | of_targets:
                yield f"{selector.metric}: no such label: {label}"
            closed = VALUES.get((selector.metric, label))
            if closed is not None and (wrong := {value for value in values if not value.startswith("$")} - closed):
                yield f"{selector.metric}: {label} is never {', '.join(sorted(wrong))}"
    if unknown := grouping_labels(expression) - usable:
        yield f"no such label: {', '.join(sorted(unknown))}"
