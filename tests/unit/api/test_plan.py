"""Plans of steps are joined field by field, and the order of two plans matters for their writes only."""

from dataclasses import fields

import pytest

from raytide.api.actions import Delete, EventSpec, PendingRetry
from raytide.api.meta import PODS
from raytide.api.plan import Plan, earliest, run_steps
from raytide.api.violations import Violation
from raytide.raycluster.plan_types import RayClusterPlan
from raytide.trainingjob.plan_types import TrainingJobPlan


def delete(name, uid="u"):
    return Delete(PODS, "ns", name, uid, "Deleted")


FILLED = {
    "actions": (delete("a"),),
    "events": (EventSpec("Reason", "message"),),
    "violations": (Violation("V-1", "spec", "is wrong"),),
    "unwanted": frozenset({"a"}),
    "requeue_after_s": 3.0,
    "is_reported": False,
    "is_last": True,
    "is_continued": True,
    "has_more": True,
    "is_status_gated": True,
    "unprotected": (Violation("V-2", "spec", "is open"),),
    "given_up": frozenset({"g"}),
    "needs_no_replica": frozenset({"h"}),
    "is_gang_late": True,
}


@pytest.mark.parametrize("kind", [Plan, RayClusterPlan, TrainingJobPlan])
def test_what_either_plan_has_the_joined_one_has(kind):
    names = [each.name for each in fields(kind) if each.name != "config"]
    for name in names:
        one = kind(**{name: FILLED[name]})
        assert kind() + one == one + kind() == one
    assert type(kind() + kind()) is kind


def test_writes_keep_their_order_and_the_earliest_delay_applies():
    both = Plan(actions=(delete("a"),), requeue_after_s=5.0) + Plan(actions=(delete("b"),), requeue_after_s=2.0)
    assert ([action.name for action in both.actions], both.requeue_after_s) == (["a", "b"], 2.0)


def test_no_plans_are_an_empty_plan():
    assert RayClusterPlan.joined([]) == RayClusterPlan()


def test_no_step_runs_after_the_last():
    steps = (lambda _: Plan(has_more=True), lambda _: Plan(is_last=True), lambda _: pytest.fail("it ran"))
    planned = run_steps(steps, None)
    assert (planned.has_more, planned.is_last) == (True, True)


def test_a_delete_without_a_uid_is_only_unwanted():
    planned = Plan.deleting([delete("a"), delete("b", uid="")])
    assert ([action.name for action in planned.actions], planned.unwanted) == (["a"], {"b"})


def test_nothing_is_built_during_a_backoff():
    rejection = PendingRetry("cpu", "FailedToCreate", "no", 7.0)
    assert Plan.unless_rejected(rejection, lambda: pytest.fail("it was built")) == Plan(requeue_after_s=7.0)
    assert Plan.unless_rejected(None, lambda: [delete("a")]).actions == (delete("a"),)


def test_creates_in_flight_are_not_repeated_for_an_invalid_or_unprotected_object():
    fault = (Violation("V-1", "spec", "is wrong"),)
    assert [RayClusterPlan().may_create, TrainingJobPlan().may_create] == [True, True]
    assert not TrainingJobPlan(violations=fault).may_create
    assert not RayClusterPlan(violations=fault).may_create
    assert not RayClusterPlan(unprotected=fault).may_create


@pytest.mark.parametrize(("delays", "expected"), [((), None), ((None, None), None), ((None, 2.0, 1.0), 1.0)])
def test_the_earliest_delay(delays, expected):
    assert earliest(*delays) == expected
