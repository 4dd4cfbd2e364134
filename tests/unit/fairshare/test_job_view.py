"""The fields of a TrainingJob that the sharing pass keeps."""

import gc
import json
import tracemalloc

import pytest

from raytide.api.capacity import Priority
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import MASTER, PSERVER, SHARING_ANNOTATION, TRAINER
from raytide.api.trainingjob_pods import priority_of
from raytide.fairshare.eligibility import job_demand
from raytide.fairshare.job_view import decode_shared_job, shared_job
from raytide.fairshare.participants import role_shapes
from raytide.trainingjob.validation import violations
from support.training_builders import SEED, trainingjob

LONG = "x" * 1_300_000
BIG_TEMPLATES = {
    "one variable of 1.3 MB": {"spec": {"containers": [{"name": "trainer", "env": [{"name": "A", "value": LONG}]}]}},
    "an annotation of 1.3 MB": {"metadata": {"annotations": {"note": LONG}}},
    "20,000 volumes": {"spec": {"volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(20_000)]}},
    "10,000 variables": {
        "spec": {"containers": [{"name": "trainer", "env": [{"name": f"A{n}", "value": "1"} for n in range(10_000)]}]}
    },
}


@pytest.mark.rule("FD:SEC-F6")
@pytest.mark.parametrize("template", BIG_TEMPLATES.values(), ids=BIG_TEMPLATES)
def test_what_is_kept_of_a_big_job_is_small(template):
    document = json.dumps(trainingjob(suspend=True, trainer={"template": template})).encode()
    decode_shared_job(document)  # what is loaded once is loaded
    gc.collect()
    tracemalloc.start()
    kept = decode_shared_job(document)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.job is not None
    assert size < 50_000


@pytest.mark.rule("FD:SEC-F6")
def test_of_a_long_status_only_the_fields_that_sharing_reads_are_kept():
    words = {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": LONG}
    status = {"conditions": [words], "trainer": {"desired": 3, "failedIndexes": "1"}, "message": LONG}
    job = shared_job({**trainingjob(), "status": status}).job
    assert len(json.dumps(job.status)) < 500
    assert job.ordered_replicas() == 3


@pytest.mark.rule("FD:SEC-F6")
@pytest.mark.parametrize(
    "asked",
    [
        {"spec": {"affinity": {"nodeAffinity": {"note": LONG}}}},
        {"spec": {"tolerations": [{"key": f"key-{n}"} for n in range(10_000)]}},
        {"spec": {"containers": [{"name": f"c{n}", "resources": {"requests": {"cpu": "1"}}} for n in range(5_000)]}},
    ],
    ids=["an affinity of 1.3 MB", "10,000 tolerations", "5,000 containers"],
)
def test_a_job_with_too_many_scheduling_constraints_is_no_participant(asked):
    assert shared_job(trainingjob(trainer={"template": asked})).job is None


@pytest.mark.rule("FD:SEC-F6", "TJ:8")
def test_what_sharing_reads_is_as_in_the_whole_job():
    whole = {
        "nodeSelector": {"zone": "east"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
                }
            }
        },
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "overhead": {"cpu": "100m"},
        "priorityClassName": "high",
        "preemptionPolicy": "Never",
        "containers": [
            {"name": "trainer", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 2}}},
            {"name": "beside", "resources": {"requests": {"cpu": "1"}}},
        ],
        "initContainers": [{"name": "first", "restartPolicy": "Always", "resources": {"requests": {"cpu": "3"}}}],
    }
    obj = {
        **SEED,
        "metadata": {
            "name": "demo",
            "namespace": "default",
            "uid": "u",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {SHARING_ANNOTATION: '{"uid": "u", "replicas": 4, "admitted": true}', "other": "x"},
        },
        "spec": {
            **SEED["spec"],
            "trainer": {**SEED["spec"]["trainer"], "template": {"spec": whole}},
            "priorityClassName": "low",
            "scaling": {"step": 2, "allowedSizes": [3, 5]},
            "startPolicy": "Gang",
        },
    }
    job, kept = TrainingJob.parse(obj), shared_job(obj).job
    assert role_shapes(kept) == role_shapes(job)
    assert set(role_shapes(kept)) == {MASTER, PSERVER, TRAINER}
    for gpus in (frozenset(), frozenset({"nvidia.com/gpu"})):
        ours, theirs = (job_demand(each, live_trainers=2, gpus=gpus) for each in (kept, job))
        assert (ours.record, ours.is_gang, ours.current) == (theirs.record, theirs.is_gang, theirs.current)
    assert kept.spec.scaling == job.spec.scaling
    assert (kept.spec.priority_class_name, kept.has_master, kept.is_elastic) == ("low", True, True)
    assert priority_of(kept, TRAINER, {"high": Priority(7)}) == Priority(7, may_preempt=False)
    assert kept.metadata.generation == 3


@pytest.mark.rule("FD:SEC3-2")
def test_a_job_whose_pods_have_more_entries_than_are_kept_has_no_view_and_a_violation_that_names_the_limits():
    job = trainingjob(trainer={"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(101)]})
    assert shared_job(job).job is None
    (found,) = violations(TrainingJob.parse(job))
    assert found.field == "spec.trainer"
    assert "100 entries, 1000 values or 32768 characters; shorten them" in str(found)
