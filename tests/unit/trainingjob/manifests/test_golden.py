"""The pods of the design document's example as whole manifests: one of each role (TJ §2.2)."""

from typing import Any

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.config import JobConfig
from raytide.api.trainingjob_pods import Size
from raytide.trainingjob.manifests.objects import build_membership, build_pod
from support.training_builders import JOB_UID, seed_job

CONFIG = JobConfig()
SEED_SIZE = Size(3, 3)
DOMAIN = "job-1.default.svc.cluster.local"


LAUNCHER_ENV = {
    "PADDLE_JOB_NAME": "job-1",
    "TRAINERS": "3",
    "PSERVERS": "3",
    "ENTRY": "python train.py",
    "TOPOLOGY": "python train.py",
    "TRAINER_PACKAGE": "/home/job-1/",
    "PADDLE_INIT_PORT": "7164",
    "PADDLE_INIT_TRAINER_COUNT": "1",
    "PADDLE_INIT_PORTS_NUM": "1",
    "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
    "PADDLE_INIT_NUM_GRADIENT_SERVERS": "3",
    "PADDLE_INIT_NUM_PASSES": "1",
    "PADDLE_INIT_USE_GPU": "1",
    "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
}
FIELDS = [
    {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
]
PORTS = [{"name": "jobport-7164", "containerPort": 7164}, {"name": "jobport-7165", "containerPort": 7165}]
MOUNTS = [{"name": "raytide-membership", "mountPath": "/etc/raytide/membership", "readOnly": True}]
ROLE_RESOURCES = {
    "limits": {"cpu": "800m", "memory": "1Gi"},
    "requests": {"cpu": "500m", "memory": "600Mi"},
}
PSERVERS = ",".join(f"job-1-pserver-{i}.{DOMAIN}:7164" for i in range(3))


def literals(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def own_env(role: str, index: int) -> dict[str, str]:
    membership = {} if role == "master" else {"RAYTIDE_MEMBERSHIP_DIR": "/etc/raytide/membership"}
    master = "$(POD_IP):8080" if role == "master" else f"job-1-master.{DOMAIN}:8080"
    return {
        "RAYTIDE_JOB_NAME": "job-1",
        "RAYTIDE_ROLE": role,
        "RAYTIDE_INDEX": str(index),
        **membership,
        "RAYTIDE_MASTER_ENDPOINT": master,
    }


REVISION = build_membership(seed_job(), SEED_SIZE, CONFIG)["metadata"]["annotations"]["raytide.io/membership-revision"]


def seed_manifest(role: str, index: int, containers: list[dict[str, Any]]) -> dict[str, Any]:
    number = {} if role == "master" else {"raytide.io/training-index": str(index)}
    name = "job-1-master" if role == "master" else f"job-1-{role}-{index}"
    membership = {"name": "raytide-membership", "configMap": {"name": "job-1-membership"}}
    volumes = [{"name": "raytide-etcd", "emptyDir": {}}] if role == "master" else [membership]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            **({} if role == "master" else {"annotations": {"raytide.io/membership-revision": REVISION}}),
            "labels": {
                "raytide.io/training-job": "job-1",
                "raytide.io/training-role": role,
                **number,
                {"master": "paddle-job-master", "pserver": "paddle-job-pserver", "trainer": "paddle-job"}[
                    role
                ]: "job-1",
            },
            "ownerReferences": [
                {
                    "apiVersion": "paddlepaddle.org/v1",
                    "kind": "TrainingJob",
                    "name": "job-1",
                    "uid": JOB_UID,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "restartPolicy": "Never",
            "hostname": name,
            "subdomain": "job-1",
            "containers": containers,
            "volumes": volumes,
        },
    }


@pytest.mark.rule("TJ:2.2", "TJ:3-18")
def test_a_trainer_of_the_design_documents_example():
    trainers = f"job-1-trainer-0.{DOMAIN}:7164,$(POD_IP):7164,job-1-trainer-2.{DOMAIN}:7164"
    fleet = {
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_PORT": "7164",
        "PADDLE_CURRENT_ENDPOINT": "$(POD_IP):7164",
        "PADDLE_TRAINERS_NUM": "3",
        "PADDLE_WITH_GLOO": "0",
        "PADDLE_PSERVERS_IP_PORT_LIST": PSERVERS,
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_TRAINER_ENDPOINTS": trainers,
    }
    container = {
        "name": "trainer",
        "image": "paddlepaddle/paddlecloud-job",
        "imagePullPolicy": "Always",
        "command": ["paddle_k8s", "start_new_trainer"],
        "ports": PORTS,
        "env": FIELDS + literals({**own_env("trainer", 1), **LAUNCHER_ENV, **fleet}),
        "volumeMounts": MOUNTS,
        "resources": {
            "limits": {"nvidia.com/gpu": 1, "cpu": "800m", "memory": "1Gi"},
            "requests": {"cpu": "500m", "memory": "600Mi", "nvidia.com/gpu": 1},
        },
    }
    assert build_pod(seed_job(), constants.TRAINER, 1, SEED_SIZE, CONFIG) == seed_manifest("trainer", 1, [container])


@pytest.mark.rule("TJ:2.2")
def test_a_parameter_server_of_the_design_documents_example():
    own = PSERVERS.replace(f"job-1-pserver-2.{DOMAIN}", "$(POD_IP)")
    fleet = {
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_PORT": "7164",
        "PADDLE_CURRENT_ENDPOINT": "$(POD_IP):7164",
        "PADDLE_TRAINERS_NUM": "3",
        "PADDLE_WITH_GLOO": "0",
        "PADDLE_PSERVERS_IP_PORT_LIST": own,
    }
    container = {
        "name": "pserver",
        "image": "paddlepaddle/paddlecloud-job",
        "command": ["paddle_k8s", "start_new_pserver"],
        "ports": PORTS,
        "env": FIELDS + literals({**own_env("pserver", 2), **LAUNCHER_ENV, **fleet}),
        "volumeMounts": MOUNTS,
        "resources": ROLE_RESOURCES,
    }
    assert build_pod(seed_job(), constants.PSERVER, 2, SEED_SIZE, CONFIG) == seed_manifest("pserver", 2, [container])


@pytest.mark.rule("TJ:2.2", "TJ:3-3", "FD:SEC-F9")
def test_the_master_of_the_design_documents_example():
    env = FIELDS + literals({**own_env("master", 0), **LAUNCHER_ENV})
    master = {
        "name": "master",
        "image": "paddlepaddle/paddlecloud-job",
        "command": ["paddle_k8s", "start_master"],
        "ports": [{"name": "master-port", "containerPort": 8080}, {"name": "etcd-port", "containerPort": 2379}],
        "env": env,
        "resources": ROLE_RESOURCES,
    }
    etcd = {
        "name": "etcd",
        "image": "quay.io/coreos/etcd:v3.6.16",
        "command": [
            "etcd",
            "-name",
            "etcd0",
            "-data-dir",
            "/var/lib/etcd/data",
            "-advertise-client-urls",
            "http://$(POD_IP):2379",
            "-listen-client-urls",
            "http://127.0.0.1:2379,http://$(POD_IP):2379",
            "-initial-advertise-peer-urls",
            "http://127.0.0.1:2380",
            "-listen-peer-urls",
            "http://127.0.0.1:2380",
            "-initial-cluster",
            "etcd0=http://127.0.0.1:2380",
            "-initial-cluster-state",
            "new",
        ],
        "env": env,
        "volumeMounts": [{"name": "raytide-etcd", "mountPath": "/var/lib/etcd"}],
        "resources": {
            "limits": {"cpu": "500m", "memory": "512Mi"},
            "requests": {"cpu": "100m", "memory": "128Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    assert build_pod(seed_job(), constants.MASTER, 0, SEED_SIZE, CONFIG) == seed_manifest("master", 0, [master, etcd])
