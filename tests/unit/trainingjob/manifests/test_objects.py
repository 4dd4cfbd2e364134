"""The children of a TrainingJob: names, labels, owners, the headless service and the membership files."""

import json
from typing import Any

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.config import JobConfig
from raytide.api.trainingjob_pod import job_pod_from_manifest
from raytide.api.trainingjob_pods import Size
from raytide.trainingjob.manifests.objects import (
    build_membership,
    build_pod,
    build_service,
    membership_name,
    pod_name,
    service_name,
)
from support.training_builders import JOB_UID, parsed_job, roles_of, seed_job, size_for

CONFIG = JobConfig()
DOMAIN = "demo.default.svc.cluster.local"
OWNER = {
    "apiVersion": "paddlepaddle.org/v1",
    "kind": "TrainingJob",
    "name": "demo",
    "uid": JOB_UID,
    "controller": True,
    "blockOwnerDeletion": True,
}


def files_of(membership: dict[str, Any]) -> dict[str, str]:
    return membership["data"]


# --- names, labels, owners -------------------------------------------------------------------------------------------
@pytest.mark.rule("TJ:2.2")
@pytest.mark.parametrize(
    ("role", "index", "name", "paddles_label"),
    [
        pytest.param("master", 0, "demo-master", "paddle-job-master", id="a master has no number"),
        pytest.param("pserver", 2, "demo-pserver-2", "paddle-job-pserver", id="a parameter server has one"),
        pytest.param("trainer", 7, "demo-trainer-7", "paddle-job", id="a trainer's label is just paddle-job"),
    ],
)
def test_a_pod_is_named_and_labelled_by_job_role_and_index(role, index, name, paddles_label):
    job = parsed_job(pserver={"min-instance": 3}, master={})
    metadata = build_pod(job, role, index, Size(8, 3), CONFIG)["metadata"]
    assert pod_name(job, role, index) == metadata["name"] == name
    assert metadata["namespace"] == "default"
    number = {} if role == "master" else {"raytide.io/training-index": str(index)}
    assert metadata["labels"] == {
        "raytide.io/training-job": "demo",
        "raytide.io/training-role": role,
        **number,
        paddles_label: "demo",
    }


def test_the_view_of_pods_reads_what_was_built():
    job = parsed_job(master={})
    pod = job_pod_from_manifest(build_pod(job, constants.TRAINER, 3, Size(4, 0), CONFIG))
    assert (pod.job, pod.role, pod.index, pod.owner_uid) == ("demo", "trainer", 3, JOB_UID)
    assert job_pod_from_manifest(build_pod(job, constants.MASTER, 0, Size(4, 0), CONFIG)).index is None


@pytest.mark.rule("RM:I8")
def test_every_child_belongs_to_its_job():
    job = parsed_job()
    size = Size(2, 0)
    children = [
        build_pod(job, constants.TRAINER, 0, size, CONFIG),
        build_service(job),
        build_membership(job, size, CONFIG),
    ]
    for child in children:
        assert child["metadata"]["ownerReferences"] == [OWNER]
        assert child["metadata"]["labels"][constants.JOB_LABEL] == "demo"


def test_jobs_of_one_name_in_two_namespaces_have_nothing_in_common():
    one, other = (parsed_job(namespace=namespace) for namespace in ("a", "b"))
    pods = [build_pod(job, constants.TRAINER, 0, Size(2, 0), CONFIG) for job in (one, other)]
    assert [pod["metadata"]["namespace"] for pod in pods] == ["a", "b"]
    endpoints = [build_membership(job, Size(1, 0), CONFIG)["data"]["trainers"] for job in (one, other)]
    assert [line.split(".")[2] for line in endpoints] == ["a", "b"]


# --- which pods ------------------------------------------------------------------------------------------------------
@pytest.mark.rule("TJ:3-3")
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {"trainer": 2}, id="trainers only by default"),
        pytest.param({"pserver": {"min-instance": 2}}, {"pserver": 2, "trainer": 2}, id="with parameter servers"),
        pytest.param({"master": {}}, {"master": 1, "trainer": 2}, id="a master where one is configured"),
        pytest.param({"fault_tolerant": True}, {"master": 1, "trainer": 2}, id="a master for fault tolerance"),
        pytest.param({"fault_tolerant": False, "high": 2}, {"trainer": 2}, id="none without fault tolerance"),
    ],
)
def test_roles_of_a_job_in_the_order_in_which_they_start(spec, expected):
    job = parsed_job(**spec)
    assert list(roles_of(job, size_for(job, 2)).items()) == list(expected.items())


@pytest.mark.rule("TJ:3-4")
@pytest.mark.parametrize(
    ("scaling", "trainers", "pservers"),
    [
        pytest.param({}, 9, 1, id="fixed at the minimum"),
        pytest.param({"mode": "Ratio", "trainersPerPserver": 2}, 5, 3, id="one for each two trainers, rounded up"),
        pytest.param({"mode": "Ratio", "trainersPerPserver": 2}, 20, 4, id="never above the maximum"),
    ],
)
def test_parameter_servers_follow_the_size(scaling, trainers, pservers):
    job = parsed_job(high=20, pserver={"min-instance": 1, "max-instance": 4, "scaling": scaling})
    assert size_for(job, trainers) == Size(trainers, pservers)


# --- service ---------------------------------------------------------------------------------------------------------
@pytest.mark.rule("TJ:7-7")
def test_the_service_is_headless_and_names_pods_before_they_are_ready():
    job = parsed_job()
    service = build_service(job)
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    assert service["metadata"]["name"] == service_name(job) == "demo"
    assert service["spec"] == {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"raytide.io/training-job": "demo"},
    }


@pytest.mark.rule("TJ:7-7")
@pytest.mark.parametrize(("role", "index"), [("master", 0), ("pserver", 1), ("trainer", 0)])
def test_every_pod_has_the_host_name_that_other_pods_use(role, index):
    job = parsed_job(pserver={"min-instance": 2}, master={})
    spec = build_pod(job, role, index, Size(2, 2), CONFIG)["spec"]
    assert (spec["hostname"], spec["subdomain"]) == (pod_name(job, role, index), service_name(job))


# --- membership ------------------------------------------------------------------------------------------------------
@pytest.mark.rule("TJ:7-7")
def test_membership_lists_all_pods_in_rank_order():
    job = parsed_job(name="demo", pserver={"min-instance": 1, "max-instance": 2}, master={})
    membership = build_membership(job, Size(3, 1), CONFIG)
    assert (membership["apiVersion"], membership["kind"]) == ("v1", "ConfigMap")
    assert membership["metadata"]["name"] == membership_name(job) == "demo-membership"
    files = files_of(membership)
    assert files["world_size"] == "3\n"
    assert files["trainers"].splitlines() == [f"demo-trainer-{i}.{DOMAIN}:7164" for i in range(3)]
    assert files["pservers"] == f"demo-pserver-0.{DOMAIN}:7164\n"
    assert json.loads(files["membership.json"]) == {
        "job": "demo",
        "namespace": "default",
        "worldSize": 3,
        "trainer": {
            "min": 2,
            "max": 4,
            "members": [
                {"rank": i, "name": f"demo-trainer-{i}", "endpoint": f"demo-trainer-{i}.{DOMAIN}:7164"}
                for i in range(3)
            ],
        },
        "pserver": {
            "min": 1,
            "max": 2,
            "members": [{"rank": 0, "name": "demo-pserver-0", "endpoint": f"demo-pserver-0.{DOMAIN}:7164"}],
        },
        "master": {"name": "demo-master", "endpoint": f"demo-master.{DOMAIN}:8080"},
    }


@pytest.mark.rule("TJ:7-5", "TJ:7-7")
def test_ranks_have_no_holes_where_indices_do():
    files = files_of(build_membership(parsed_job(), Size(3, 0, (0, 2, 5)), CONFIG))
    members = json.loads(files["membership.json"])["trainer"]["members"]
    assert [(member["rank"], member["name"]) for member in members] == [
        (0, "demo-trainer-0"),
        (1, "demo-trainer-2"),
        (2, "demo-trainer-5"),
    ]
    assert files["world_size"] == "3\n"


def test_membership_without_servers_and_master_omits_them():
    files = files_of(build_membership(parsed_job(), Size(2, 0), CONFIG))
    assert files["pservers"] == ""
    assert not {"pserver", "master"} & json.loads(files["membership.json"]).keys()


def test_membership_is_the_same_for_the_same_size_and_spec():
    assert build_membership(seed_job(), Size(3, 3), CONFIG) == build_membership(seed_job(), Size(3, 3), CONFIG)
    assert build_membership(seed_job(), Size(3, 3), CONFIG) != build_membership(seed_job(), Size(4, 3), CONFIG)


def test_membership_of_a_very_large_job_fits_into_a_configmap():
    name, namespace = "j" * 40, "n" * 40
    files = files_of(build_membership(parsed_job(name=name, namespace=namespace, high=2000), Size(2000, 0), CONFIG))
    assert sum(len(content) for content in files.values()) < 2**20


def test_names_follow_the_clusters_domain():
    files = files_of(build_membership(parsed_job(), Size(1, 0), JobConfig(cluster_domain="corp")))
    assert files["trainers"] == "demo-trainer-0.demo.default.svc.corp:7164\n"


@pytest.mark.rule("TJ:7-7")
@pytest.mark.parametrize("role", ["pserver", "trainer"])
def test_the_files_are_mounted_where_training_runs_and_cannot_be_written(role):
    pod = build_pod(parsed_job(pserver={"min-instance": 1}), role, 0, Size(2, 1), CONFIG)
    volume = {"name": "raytide-membership", "configMap": {"name": "demo-membership"}}
    mount = {"name": "raytide-membership", "mountPath": "/etc/raytide/membership", "readOnly": True}
    assert pod["spec"]["volumes"] == [volume]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [mount]
