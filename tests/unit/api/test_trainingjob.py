"""TrainingJobs as users write them: every spelling, upstream's defaults, and the interpretations of TJ §3."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from raytide.api.base_model import faults_of
from raytide.api.config import DEFAULT_GPUS
from raytide.api.sharing_record import SharingRecord, encode_record
from raytide.api.training_resources import (
    gpus_per_trainer,
    is_extended,
    is_gang,
    is_gpu_job,
    normalised,
    role_resources,
)
from raytide.api.trainingjob import DEFAULT_IMAGE, Resources, TrainingJob
from raytide.api.trainingjob_constants import MASTER, PSERVER, ROLES, SHARING_ANNOTATION, TRAINER

SEED = yaml.safe_load((Path(__file__).parents[3] / "samples" / "trainingjob-seed.yaml").read_text())


def parsed(trainer=None, **spec):
    least = {} if "minInstance" in (trainer or {}) else {"min-instance": 1}
    given = {"trainer": {**least, **(trainer or {})}, **spec}
    return TrainingJob.parse({"metadata": {"name": "job", "namespace": "ns"}, "spec": given})


def trainer_with(limits=None, requests=None, **more):
    return parsed({"resources": {"limits": limits or {}, "requests": requests or {}}, **more})


# --- the seed's example --------------------------------------------------------------------------------------------------


def test_the_seeds_example_is_read():
    job = TrainingJob.parse(SEED)
    trainer, pserver = job.spec.trainer, job.spec.pserver
    assert (trainer.min_instance, trainer.ceiling, pserver.min_instance, pserver.ceiling) == (3, 6, 3, 3)
    assert (trainer.entrypoint, trainer.workspace) == ("python train.py", "/home/job-1/")
    assert (job.is_elastic, job.is_fault_tolerant, job.has_master) == (True, True, True)
    assert job.desired_replicas() == 3


@pytest.mark.rule("TJ:3-18")
def test_the_seeds_trainer_has_todays_gpu_in_limits_and_requests():
    resources = role_resources(TrainingJob.parse(SEED), TRAINER)
    assert resources.limits == {"nvidia.com/gpu": 1, "cpu": "800m", "memory": "1Gi"}
    assert resources.requests == {"nvidia.com/gpu": 1, "cpu": "500m", "memory": "600Mi"}


@pytest.mark.parametrize("role", [MASTER, PSERVER])
@pytest.mark.rule("TJ:3-3")
def test_the_seeds_other_roles_have_their_resources(role):
    resources = role_resources(TrainingJob.parse(SEED), role)
    assert resources.limits == {"cpu": "800m", "memory": "1Gi"}
    assert resources.requests == {"cpu": "500m", "memory": "600Mi"}


# --- defaults and spellings --------------------------------------------------------------------------------------------------

UPSTREAM = {"image": DEFAULT_IMAGE, "port": 7164, "ports_num": 1, "ports_num_for_sparse": 1}


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({}, id="nothing"),
        pytest.param(dict.fromkeys(UPSTREAM), id="null"),
        pytest.param({"image": "", "port": 0, "ports_num": 0, "ports_num_for_sparse": 0}, id="Go's zero"),
    ],
)
def test_absent_fields_have_upstreams_defaults(written):
    spec = parsed(**written).spec
    assert {name: getattr(spec, name) for name in UPSTREAM} == UPSTREAM


SPELLINGS = {
    "min-instance": ({"trainer": {"min-instance": 2}}, lambda s: s.trainer.min_instance, 2),
    "minInstance": ({"trainer": {"minInstance": 2}}, lambda s: s.trainer.min_instance, 2),
    "max-instance": ({"trainer": {"max-instance": 5}}, lambda s: s.trainer.ceiling, 5),
    "maxInstance": ({"trainer": {"maxInstance": 5}}, lambda s: s.trainer.ceiling, 5),
    "ports_num": ({"ports_num": 3}, lambda s: s.ports_num, 3),
    "portsNum": ({"portsNum": 3}, lambda s: s.ports_num, 3),
    "ports_num_for_sparse": ({"ports_num_for_sparse": 3}, lambda s: s.ports_num_for_sparse, 3),
    "fault_tolerant": ({"fault_tolerant": True}, lambda s: s.fault_tolerant, True),
    "faultTolerant": ({"faultTolerant": True}, lambda s: s.fault_tolerant, True),
    "VolumeMounts": ({"VolumeMounts": [{"name": "a"}]}, lambda s: s.volume_mounts, ({"name": "a"},)),
    "volumeMounts": ({"volumeMounts": [{"name": "a"}]}, lambda s: s.volume_mounts, ({"name": "a"},)),
    "host_network": ({"host_network": True}, lambda s: s.host_network, True),
    "hostNetwork": ({"hostNetwork": True}, lambda s: s.host_network, True),
    "schedulerName": ({"schedulerName": "kube-batch"}, lambda s: s.scheduler_name, "kube-batch"),
    "podGroupName": ({"podGroupName": "g"}, lambda s: s.pod_group_name, "g"),
    "node_selector": ({"trainer": {"node_selector": {"a": "b"}}}, lambda s: s.trainer.node_selector, {"a": "b"}),
    "nodeSelector": ({"trainer": {"nodeSelector": {"a": "b"}}}, lambda s: s.trainer.node_selector, {"a": "b"}),
    "grace_period_seconds": ({"master": {"grace_period_seconds": 7}}, lambda s: s.master.grace_period_seconds, 7),
    "gracePeriodSeconds": ({"master": {"gracePeriodSeconds": 7}}, lambda s: s.master.grace_period_seconds, 7),
    "pre_stop_cmd": ({"pserver": {"pre_stop_cmd": ["a", "b"]}}, lambda s: s.pserver.pre_stop_cmd, ("a", "b")),
    "preStopCmd as one line": ({"pserver": {"preStopCmd": "a b"}}, lambda s: s.pserver.pre_stop_cmd, "a b"),
    "liveness_probe": ({"trainer": {"liveness_probe": {"a": 1}}}, lambda s: s.trainer.liveness_probe, {"a": 1}),
    "readinessProbe": ({"trainer": {"readinessProbe": {"a": 1}}}, lambda s: s.trainer.readiness_probe, {"a": 1}),
    "imagePullSecrets of a role": (
        {"trainer": {"imagePullSecrets": [{"name": "x"}]}},
        lambda s: s.trainer.image_pull_secrets,
        ({"name": "x"},),
    ),
    "a bare Ratio": ({"pserver": {"scaling": "Ratio"}}, lambda s: s.pserver.is_by_ratio, True),
    "a whole ratio": (
        {"pserver": {"scaling": {"mode": "Ratio", "trainersPerPserver": 4}}},
        lambda s: s.pserver.trainers_per_pserver,
        4,
    ),
    "a bare Fixed": ({"pserver": {"scaling": "Fixed"}}, lambda s: s.pserver.is_by_ratio, False),
}


@pytest.mark.rule("TJ:3-20")
@pytest.mark.parametrize(("written", "read", "expected"), SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_is_read(written, read, expected):
    given = dict(written)
    assert read(parsed(given.pop("trainer", None), **given).spec) == expected


@pytest.mark.rule("TJ:3-20")
@pytest.mark.parametrize(
    ("spec", "trainer", "expected"),
    [
        pytest.param(None, None, 1, id="nowhere"),
        pytest.param(None, 3, 3, id="under trainer, where upstream ignored it"),
        pytest.param(2, None, 2, id="under spec"),
        pytest.param(2, 3, 2, id="in both places"),
        pytest.param(0, 0, 1, id="Go's zero"),
    ],
)
def test_passes_are_read_in_both_places(spec, trainer, expected):
    assert parsed({"passes": trainer}, passes=spec).passes == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param({}, None, id="no end"),
        pytest.param({"annotations": {"walltime": 0}}, None, id="a walltime of zero"),
        pytest.param({"annotations": {"walltime": 60, "userid": "x"}}, 60, id="a walltime"),
        pytest.param({"annotations": {"walltime": 60}, "activeDeadlineSeconds": 30}, 30, id="both"),
    ],
)
def test_the_deadline_is_active_deadline_seconds_or_walltime(written, expected):
    assert parsed(**written).deadline_s == expected


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"trainer": {"minInstance": "two"}}, "spec.trainer.minInstance", id="a count that is no number"),
        pytest.param({"trainer": {"min-instance": []}}, "spec.trainer.min-instance", id="a count as a list"),
        pytest.param({}, "spec.trainer", id="no trainer"),
        pytest.param({"trainer": 3}, "spec.trainer", id="a trainer as a number"),
        pytest.param({"trainer": {}, "ports_num": "many"}, "spec.ports_num", id="ports that are no number"),
        pytest.param({"trainer": {}, "VolumeMounts": 3}, "spec.VolumeMounts", id="mounts as a number"),
        pytest.param(
            {"trainer": {}, "pserver": {"scaling": "Often"}}, "spec.pserver.scaling.mode", id="an unknown bare mode"
        ),
        pytest.param(
            {"trainer": {"resources": {"limits": {"cpu": []}}}},
            "spec.trainer.resources.limits.cpu",
            id="an amount as a list",
        ),
        pytest.param(
            {"trainer": {"resources": {"requests": {"cpu": True}}}},
            "spec.trainer.resources.requests.cpu",
            id="an amount as a truth",
        ),
        pytest.param({"trainer": {"preStopCmd": [1]}}, "spec.trainer.preStopCmd", id="a command of numbers"),
        pytest.param({"trainer": {}, "framework": "mx"}, "spec.framework", id="an unknown framework"),
    ],
)
def test_an_invalid_type_is_reported_with_its_path(spec, field):
    with pytest.raises(ValidationError) as caught:
        TrainingJob.parse({"metadata": {"name": "job"}, "spec": spec})
    assert [fault.field for fault in faults_of(caught.value)] == [field]


# --- readings ----------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3-1")
@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        pytest.param(0, 0, False, id="nothing at all"),
        pytest.param(1, 2, True, id="min below max"),
        pytest.param(2, 2, False, id="min equals max"),
        pytest.param(2, None, False, id="no max"),
    ],
)
def test_elastic_is_min_below_max(low, high, expected):
    assert parsed({"min-instance": low, "max-instance": high}).is_elastic == expected


@pytest.mark.rule("TJ:3-2")
@pytest.mark.parametrize(
    ("declared", "high", "expected"),
    [(None, 2, True), (None, 1, False), (True, 1, True), (False, 1, False), (False, 2, False)],
)
def test_fault_tolerance_is_inferred_where_it_is_not_set(declared, high, expected):
    assert parsed({"max-instance": high}, fault_tolerant=declared).is_fault_tolerant == expected


@pytest.mark.rule("TJ:3-3")
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, False, id="neither"),
        pytest.param({"master": {}}, True, id="configured"),
        pytest.param({"fault_tolerant": True}, True, id="fault tolerant"),
        pytest.param({"fault_tolerant": False}, False, id="not fault tolerant"),
    ],
)
def test_there_is_a_master_iff_configured_or_fault_tolerant(spec, expected):
    assert parsed(**spec).has_master == expected


@pytest.mark.rule("TJ:3-3")
def test_fault_tolerance_merely_inferred_makes_no_master():
    assert not parsed({"max-instance": 9}).has_master


@pytest.mark.rule("TJ:3-3")
@pytest.mark.parametrize("spec", [{"fault_tolerant": True}, {"master": {}}], ids=["no master", "a bare master"])
def test_a_master_without_resources_gets_upstreams(spec):
    resources = role_resources(parsed(**spec), MASTER)
    assert resources.limits == {"cpu": "2", "memory": "1Gi"}
    assert resources.requests == {"cpu": "1", "memory": "500Mi"}


@pytest.mark.rule("TJ:3-4")
@pytest.mark.parametrize(
    ("scaling", "trainers", "expected"),
    [
        pytest.param("Fixed", 20, 2, id="fixed: the minimum"),
        pytest.param("Ratio", 3, 3, id="one to one"),
        pytest.param({"mode": "Ratio", "trainersPerPserver": 4}, 9, 3, id="rounded up"),
        pytest.param({"mode": "Ratio", "trainersPerPserver": 4}, 1, 2, id="not below the minimum"),
        pytest.param("Ratio", 9, 5, id="not above the maximum"),
    ],
)
def test_parameter_servers_follow_trainers_only_if_configured(scaling, trainers, expected):
    job = parsed(pserver={"min-instance": 2, "max-instance": 5, "scaling": scaling})
    assert job.spec.pserver.count_for(trainers) == expected


@pytest.mark.rule("TJ:3-21")
@pytest.mark.parametrize(("replicas", "expected"), [(None, 2), (0, 2), (4, 4), (99, 6)])
def test_a_requested_size_is_bounded(replicas, expected):
    assert parsed({"min-instance": 2, "max-instance": 6, "replicas": replicas}).desired_replicas() == expected


@pytest.mark.rule("TJ:3-21")
@pytest.mark.parametrize(
    ("record", "status", "expected"),
    [
        pytest.param("u1", {}, 5, id="the record has the size"),
        pytest.param("u1", {"trainer": {"desired": 3}}, 5, id="the record takes precedence over the status"),
        pytest.param("another", {"trainer": {"desired": 3}}, 3, id="another job's record is ignored"),
        pytest.param(None, {"trainer": {"desired": 3}}, 3, id="without a record the status has the size"),
        pytest.param(None, {"trainer": {"desired": 99}}, 6, id="within its bounds"),
        pytest.param(None, {"trainer": {"desired": 0}}, 2, id="it had no pods"),
        pytest.param(None, {"trainer": {"desired": "many"}}, 2, id="an invalid value is ignored"),
        pytest.param(None, {"trainer": []}, 2, id="there is no earlier size"),
    ],
)
def test_a_size_that_was_taken_out_of_the_spec_shrinks_no_job(record, status, expected):
    job = parsed({"min-instance": 2, "max-instance": 6})
    text = encode_record(SharingRecord(record, 5, is_admitted=True)) if record else ""
    metadata = job.metadata.model_copy(update={"uid": "u1", "annotations": {SHARING_ANNOTATION: text}})
    assert job.model_copy(update={"metadata": metadata, "status": status}).desired_replicas() == expected


def test_a_role_is_found_by_its_name():
    job = TrainingJob.parse(SEED)
    assert [job.role(role) for role in ROLES] == [job.spec.master, job.spec.pserver, job.spec.trainer]


# --- what a pod asks for -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "requests", "limits"),
    [
        pytest.param({"limits": {"cpu": 1}}, {"cpu": 1}, {"cpu": 1}, id="a limit without a request is the request too"),
        pytest.param({"requests": {"cpu": 1}}, {"cpu": 1}, {}, id="a request without a limit has none"),
        pytest.param(
            {"requests": {"a.b/c": 1}}, {"a.b/c": 1}, {"a.b/c": 1}, id="an extended resource is the same in both"
        ),
        pytest.param(
            {"limits": {"cpu": 2}, "requests": {"cpu": 1}}, {"cpu": 1}, {"cpu": 2}, id="both stay as they are"
        ),
        pytest.param(
            {"limits": {"alpha.kubernetes.io/nvidia-gpu": 2}},
            {"nvidia.com/gpu": 2},
            {"nvidia.com/gpu": 2},
            id="the old name",
        ),
        pytest.param(
            {"limits": {"alpha.kubernetes.io/nvidia-gpu": 2, "nvidia.com/gpu": 3}},
            {"nvidia.com/gpu": 3},
            {"nvidia.com/gpu": 3},
            id="both names: today's",
        ),
    ],
)
@pytest.mark.rule("TJ:3-18")
def test_requests_are_filled_in_as_kubernetes_does(written, requests, limits):
    resources = normalised(Resources.model_validate(written))
    assert (resources.requests, resources.limits) == (requests, limits)


def test_resources_of_the_main_container_in_the_template_take_precedence():
    template = {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"cpu": 4, "memory": None}}}]}}
    job = trainer_with({"cpu": 1, "memory": "1Gi"}, template=template)
    assert role_resources(job, TRAINER).limits == {"cpu": 4}


def test_resources_of_other_containers_in_the_template_are_not_the_roles():
    template = {"spec": {"containers": [{"name": "proxy", "resources": {"limits": {"cpu": 4}}}]}}
    assert role_resources(trainer_with({"cpu": 1}, template=template), TRAINER).limits == {"cpu": 1}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cpu", False), ("hugepages-2Mi", False), ("kubernetes.io/batteries", False), ("nvidia.com/mig-1g.5gb", True)],
)
def test_what_cannot_be_overcommitted(name, expected):
    assert is_extended(name) == expected


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize(
    ("limits", "requests", "expected"),
    [
        pytest.param({}, {}, False, id="nothing"),
        pytest.param({"cpu": 1}, {}, False, id="CPUs"),
        pytest.param({"nvidia.com/gpu": 1}, {}, True, id="today's name"),
        pytest.param({"alpha.kubernetes.io/nvidia-gpu": "1"}, {}, True, id="the old name"),
        pytest.param({"amd.com/gpu": 1}, {}, True, id="another vendor"),
        pytest.param({}, {"nvidia.com/gpu": 1}, True, id="in requests alone"),
        pytest.param({"nvidia.com/gpu": 0}, {}, False, id="none of them"),
        pytest.param({"example.com/gpu": 1}, {}, False, id="a resource that is not configured as a GPU"),
        pytest.param({"nvidia.com/gpu": "some"}, {}, False, id="an unreadable number"),
    ],
)
def test_a_gpu_job_is_one_whose_trainers_have_gpus(limits, requests, expected):
    assert is_gpu_job(trainer_with(limits, requests), DEFAULT_GPUS) == expected


@pytest.mark.rule("TJ:3-18")
def test_which_resources_are_gpus_can_be_configured():
    job = trainer_with({"nvidia.com/mig-1g.5gb": 2, "nvidia.com/gpu": 1})
    assert gpus_per_trainer(job, DEFAULT_GPUS | {"nvidia.com/mig-1g.5gb"}) == 3


@pytest.mark.rule("TJ:3-11")
@pytest.mark.parametrize(
    ("policy", "limits", "expected"),
    [
        (None, {"nvidia.com/gpu": 1}, True),
        (None, {"cpu": 1}, False),
        ("Gang", {"cpu": 1}, True),
        ("Optimistic", {"nvidia.com/gpu": 1}, False),
    ],
)
def test_gpu_jobs_are_gangs_by_default(policy, limits, expected):
    job = parsed({"resources": {"limits": limits}}, startPolicy=policy)
    assert is_gang(job, DEFAULT_GPUS) == expected
