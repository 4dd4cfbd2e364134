"""A pass is skipped only if no timer runs and nothing has changed."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from raytide.api.autoscaler_decision import Backoff, GroupDecision
from raytide.autoscaler.model import HEAD_TYPE, Demand, GcsState, Instance, NodeStatus, RayNode, Request, Status
from raytide.autoscaler.sidecar.skip_reconcile import MAX_SKIP_S, can_skip_reconcile
from raytide.autoscaler.state.snapshot import ReconcileResult, Snapshot
from raytide.diagnosis.model import Diagnosis
from support.builders import head, pod, raycluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = RayNode("aa", NodeStatus.RUNNING, "w", "cpu")
STATE = GcsState(nodes=(NODE,), version=1, session="s")
CLUSTER = {**raycluster(), "metadata": {"name": "demo", "uid": "u", "resourceVersion": "7"}}
BEFORE = Snapshot(CLUSTER, (head(), pod("w")), STATE, NOW, 0.0)
AFTER = replace(BEFORE, gcs=replace(STATE, version=2), monotonic_s=5.0)
RUNNING = Instance("w", "cpu", Status.RAY_RUNNING)
PLAN = ReconcileResult(decisions={"cpu": GroupDecision(1)}, instances=(RUNNING,))


@pytest.mark.rule("AS:L-1")
def test_a_pass_without_changes_is_skipped():
    assert can_skip_reconcile(BEFORE, PLAN, AFTER)


@pytest.mark.rule("PF:P9")
def test_a_head_that_is_idle_for_longer_and_longer_is_no_change():
    def idle(before: Snapshot, idle_ms: int) -> Snapshot:
        head_node = RayNode("hh", NodeStatus.IDLE, "demo-head", HEAD_TYPE, idle_ms=idle_ms)
        return replace(before, gcs=replace(STATE, nodes=(head_node, NODE)))

    assert can_skip_reconcile(idle(BEFORE, 5000), PLAN, idle(AFTER, 10_000))


@pytest.mark.rule("AS:L-1")
@pytest.mark.parametrize(
    "after",
    [
        pytest.param(replace(AFTER, monotonic_s=MAX_SKIP_S), id="a minute is over"),
        pytest.param(replace(AFTER, pods=(head(),)), id="a pod has gone"),
        pytest.param(replace(AFTER, gcs=None), id="the GCS does not answer"),
        pytest.param(replace(AFTER, gcs=replace(STATE, session="t")), id="the GCS is another one"),
        pytest.param(replace(AFTER, gcs=replace(STATE, nodes=(replace(NODE, idle_ms=5),))), id="a node is idle"),
        pytest.param(replace(AFTER, gcs=replace(STATE, tasks=(Demand(Request(())),))), id="a task waits"),
        pytest.param(replace(AFTER, gcs=replace(STATE, constraint=(Demand(Request(())),))), id="a constraint exists"),
        pytest.param(
            replace(AFTER, cluster={**CLUSTER, "metadata": {"uid": "u", "resourceVersion": "8"}}), id="an edit"
        ),
    ],
)
def test_whatever_changes_is_decided_on(after):
    assert not can_skip_reconcile(BEFORE, PLAN, after)


@pytest.mark.rule("AS:L-1")
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(replace(PLAN, patch=({"op": "test"},)), id="a patch was sent, and may have been lost"),
        pytest.param(replace(PLAN, requeue_after_s=3.0), id="something becomes due"),
        pytest.param(replace(PLAN, why_not="paused"), id="nothing was decided"),
        pytest.param(replace(PLAN, instances=(replace(RUNNING, status=Status.REQUESTED),)), id="a node is coming"),
        pytest.param(
            replace(PLAN, decisions={"cpu": GroupDecision(1, why=(Diagnosis("MaxReached"),))}),
            id="a group has a reason",
        ),
        pytest.param(
            replace(PLAN, decisions={"cpu": GroupDecision(1, backoff=Backoff(1, NOW))}), id="a group is in backoff"
        ),
    ],
)
def test_a_pass_is_not_skipped_while_a_timer_runs(plan):
    assert not can_skip_reconcile(BEFORE, plan, AFTER)
