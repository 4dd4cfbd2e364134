"""ResourceQuotas while a plan is carried out on a snapshot (`raytide.simulator.quota_usage`), and in `raytide plan --submit`."""

from raytide.api.capacity import CapacityPod, capacity_quota_from_object
from raytide.api.meta import Key
from raytide.api.trainingjob import TrainingJob
from raytide.simulator.quota_usage import QuotaUsage
from support.plan_snapshots import job, quota


def usage(*quotas):
    return QuotaUsage(map(capacity_quota_from_object, quotas))


def parsed(name="a", **spec):
    return TrainingJob.parse(job(name, 1, 9, 1, **spec))


def trainer(namespace="default", job_name="a"):
    requests = {"cpu": 1000, "pods": 1}
    return CapacityPod(
        namespace=namespace, name="a-trainer-0", job=job_name, role="trainer", requests=requests, limits={"cpu": 2000}
    )


def used(of):
    return [each.used for each in of.quotas]


def test_a_pod_counts_by_each_resource_that_the_quota_names():
    here = usage(quota(used={"pods": "1"}, **{"requests.cpu": "3", "limits.cpu": "9", "pods": "5", "services": "2"}))
    assert here.create(trainer(), parsed())
    assert used(here) == [{"pods": 2, "requests.cpu": 1000, "limits.cpu": 2000}]
    here.release(trainer(), parsed())
    assert used(here) == [{"pods": 1, "requests.cpu": 0, "limits.cpu": 0}]


def test_a_pod_that_exceeds_one_quota_is_charged_to_none():
    here = usage(quota(pods="5"), {**quota(pods="0"), "metadata": {"name": "full", "namespace": "default"}})
    assert not here.create(trainer(), parsed())
    assert used(here) == [{}, {}]
    assert here.rejected == {Key("default", "a")}


def test_a_quota_of_another_namespace_or_priority_class_does_not_count_it():
    of_class = quota(pods="0")
    of_class["spec"]["scopeSelector"] = {
        "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["vip"]}]
    }
    here = usage(quota("other", pods="0"), of_class)
    assert here.create(trainer(), parsed())
    assert not here.create(trainer(), parsed(priorityClassName="vip"))


def test_a_quota_of_pods_with_a_deadline_counts_none_of_a_job():
    of_ending = quota(pods="0")
    of_ending["spec"]["scopes"] = ["Terminating"]
    assert usage(of_ending).create(trainer(), parsed())


def test_a_file_that_omits_the_usage_leaves_no_more_than_the_quota():
    here = usage(quota(pods="5"))
    here.release(trainer(), parsed())
    assert used(here) == [{"pods": 0}]
