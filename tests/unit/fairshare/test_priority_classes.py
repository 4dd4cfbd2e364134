"""PriorityClasses: which quotas apply to a job, and the actual priority of its pods."""

import pytest

from raytide.api.capacity import Priority
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare.algorithm.allocate import allocate
from raytide.trainingjob.validation import violations, warnings
from support.elastic_builders import resizes_of
from unit.fairshare.harness import job_manifest
from unit.fairshare.test_participants import made, node, pod_of, quota

PRIORITIES = {"high": Priority(1000), "low": Priority(-5)}


def scoped(hard, operator, *values, **more):
    """A quota whose scope selects PriorityClasses."""
    rule = {"scopeName": "PriorityClass", "operator": operator, **({"values": list(values)} if values else {})}
    return quota(hard, scopeSelector={"matchExpressions": [rule]}, **more)


def of_class(name, priority_class, *, replicas=1, template=None, **spec):
    obj = job_manifest(name, 1, 20, priorityClassName=priority_class, **spec)
    obj["metadata"] |= {"namespace": "ns", "uid": f"uid-{name}", "generation": 1}
    obj["spec"]["trainer"] |= {"replicas": replicas} | ({} if template is None else {"template": {"spec": template}})
    return TrainingJob.parse(obj)


def trainer_of(name):
    return pod_of(0, "n", uid=f"uid-{name}", job=name)


@pytest.mark.rule("FD:SH-B7")
@pytest.mark.parametrize(
    ("given", "limited"),
    [
        pytest.param(scoped({"pods": "4"}, "In", "high"), True, id="one of these"),
        pytest.param(scoped({"pods": "4"}, "In", "low"), False, id="others"),
        pytest.param(scoped({"pods": "4"}, "NotIn", "low"), True, id="all but others"),
        pytest.param(scoped({"pods": "4"}, "Exists"), True, id="any"),
        pytest.param(scoped({"pods": "4"}, "DoesNotExist"), False, id="none"),
        pytest.param(quota({"pods": "4"}, scopes=["PriorityClass"]), True, id="any, in the short form"),
    ],
)
def test_a_quota_of_a_priority_class_limits_only_jobs_of_that_class(given, limited):
    jobs = [of_class("one", "high"), of_class("two", "low")]
    pods = [trainer_of("one"), trainer_of("two")]
    pool = made(jobs, pods, nodes=[node("n", "40")], quotas=[given], priorities=PRIORITIES)
    assert (resizes_of(allocate(pool))["one"] <= 4) is limited


@pytest.mark.rule("FD:SH-B7")
def test_a_quota_of_one_class_is_not_used_up_by_what_others_ordered():
    jobs = [of_class("one", "high"), of_class("two", "low", replicas=9)]
    (found,) = made(jobs, quotas=[scoped({"pods": "4"}, "In", "high")], priorities=PRIORITIES).quotas
    assert found.free == {"pods": 3}


@pytest.mark.rule("FD:TJ3-7")
@pytest.mark.parametrize(
    ("spec", "may_preempt"),
    [
        pytest.param({}, True, id="a class that may"),
        pytest.param({"priority_class": "never"}, False, id="a class that may not"),
        pytest.param({"master": {"template": {"spec": {"priorityClassName": "never"}}}}, False, id="of one role"),
        pytest.param({"master": {"template": {"spec": {"preemptionPolicy": "Never"}}}}, False, id="by a template"),
        pytest.param(
            {"priority_class": "never", "template": {"preemptionPolicy": "PreemptLowerPriority"}},
            False,
            id="by the class, of pods that the API server rejects",
        ),
    ],
)
def test_a_job_may_preempt_if_all_its_pods_may(spec, may_preempt):
    priorities = {**PRIORITIES, "never": Priority(1000, may_preempt=False)}
    found = made(of_class("j", **{"priority_class": "high", **spec}), priorities=priorities).participants[0]
    assert (found.priority, found.may_preempt) == (1000, may_preempt)


@pytest.mark.rule("FD:SEC-F4")
@pytest.mark.parametrize(
    ("template", "priority"),
    [
        pytest.param({"priorityClassName": "low"}, -5, id="another class"),
        pytest.param({"priorityClassName": ""}, 0, id="none"),
        pytest.param({"priorityClassName": None}, 0, id="taken away"),
        pytest.param({}, 1000, id="no class"),
    ],
)
def test_the_priority_of_a_job_is_that_of_its_pods(template, priority):
    forged = of_class("j", "high", template=template)
    assert made(forged, priorities=PRIORITIES).participants[0].priority == priority


@pytest.mark.rule("FD:SEC-F4")
def test_a_master_of_a_high_class_lifts_no_trainers_of_a_low_one():
    mixed = of_class("j", "low", master={"template": {"spec": {"priorityClassName": "high"}}})
    assert made(mixed, priorities=PRIORITIES).participants[0].priority == -5


@pytest.mark.rule("FD:SEC-F4", "FD:SH-B7")
def test_the_quota_of_a_job_is_that_of_its_pods():
    forged = of_class("j", "high", template={"priorityClassName": "low"})
    found = made(forged, quotas=[scoped({"pods": "4"}, "In", "low")], priorities=PRIORITIES).quotas
    assert [each.free for each in found] == [{"pods": 3}]


@pytest.mark.rule("FD:SEC-F4")
def test_two_different_priority_classes_are_a_warning():
    forged = of_class("j", "high", template={"priorityClassName": "low"})
    assert not violations(forged)
    (told,) = [str(each) for each in warnings(forged) if "priorityClassName" in each.field]
    assert told.startswith("spec.trainer.template.spec.priorityClassName is low, but spec.priorityClassName is high")
