"""Objects built for a TrainingJob are stored by API servers, embedded and real, exactly as they are built.

Each job is stored first, as its user writes it; its children are built from what the server gives back and created without
a doubt of strict validation. No controller runs: this is about manifests.
"""

import copy
import secrets
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.clusters import APIS
from integration.probe.client import APPLY, Client, eventually
from integration.probe.servers import embedded, from_kubeconfig
from raytide.api import trainingjob_constants as constants
from raytide.api.config import JobConfig
from raytide.api.meta import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, PODS, SERVICES, TRAININGJOBS, Resource
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.manifests.objects import build_membership, build_pod, build_service
from support.training_builders import roles_of, size_for

ROOT = Path(__file__).parents[2]
CRD = yaml.load((ROOT / "crds" / "paddlepaddle.org_trainingjobs.yaml").read_text(), Loader=yaml.CSafeLoader)
SEED = yaml.safe_load((ROOT / "samples" / "trainingjob-seed.yaml").read_text())
CONFIG = JobConfig()

Json = dict[str, Any]


@pytest.fixture(scope="module", params=APIS)
def api(request):
    """A client of an API server that serves TrainingJobs, in a namespace of its own."""
    namespace = f"objects-{secrets.token_hex(3)}"
    if request.param == "embedded":
        with embedded() as endpoint:
            yield from served(Client(endpoint, namespace))
    else:
        plane = request.getfixturevalue("kube_plane")
        yield from served(Client(from_kubeconfig(str(plane.kubeconfig)), namespace))


def served(client):
    path = f"{CUSTOM_RESOURCE_DEFINITIONS.path()}/{CRD['metadata']['name']}"
    answer = client.patch(path, CRD, APPLY, fieldManager="tests", force="true")
    assert answer.status in (200, 201), answer.body
    eventually(lambda: client.get(TRAININGJOBS.path(client.namespace)).status == 200, "TrainingJobs are served")
    assert client.post("/api/v1/namespaces", {"metadata": {"name": client.namespace}}).status == 201
    account = f"/api/v1/namespaces/{client.namespace}/serviceaccounts/default"
    eventually(lambda: client.get(account).status == 200, "pods are admitted")
    yield client
    client.delete(f"/api/v1/namespaces/{client.namespace}")
    client.close()


def stored(api: Client, manifest: Json, **spec: Any) -> TrainingJob:
    """The job as the server gives it back, under a name that no other test has."""
    obj = copy.deepcopy(manifest)
    obj["metadata"]["name"] = f"job-{secrets.token_hex(3)}"
    obj["spec"] |= spec
    answer = api.post(TRAININGJOBS.path(api.namespace), obj, fieldValidation="Strict")
    assert answer.status == 201, answer.body
    return TrainingJob.parse(answer.body)


def create(api: Client, resource: Resource, manifest: Json) -> Json:
    answer = api.post(resource.path(api.namespace), manifest, fieldValidation="Strict")
    assert answer.status == 201, answer.body
    return answer.body


def create_children(api: Client, job: TrainingJob) -> dict[str, Json]:
    """Everything the job needs at its minimum, as stored; pods by name."""
    size = size_for(job, job.desired_replicas())
    create(api, SERVICES, build_service(job))
    create(api, CONFIG_MAPS, build_membership(job, size, CONFIG))
    pods = [
        build_pod(job, role, index, size, CONFIG)
        for role, count in roles_of(job, size).items()
        for index in range(count)
    ]
    return {pod["metadata"]["name"]: create(api, PODS, pod) for pod in pods}


def differences(built: Any, kept: Any, path: str = "") -> list[str]:
    """Where something that was built is not as it is kept; what a server adds is its own affair."""
    if isinstance(built, dict) and isinstance(kept, dict):
        return [d for key in built for d in differences(built[key], kept.get(key), f"{path}.{key}")]
    if isinstance(built, list) and isinstance(kept, list) and len(built) <= len(kept):
        return [d for i, each in enumerate(built) for d in differences(each, kept[i], f"{path}[{i}]")]
    is_same = built == kept or str(built) == str(kept) or (built == "" and kept is None)
    return [] if is_same else [f"{path}: {built!r} became {kept!r}"]


# --- the example of the design document ----------------------------------------------------------------------------------
@pytest.mark.rule("TJ:2.2", "TJ:3-3", "TJ:3-18")
def test_the_example_yields_three_trainers_three_pservers_and_a_master(api):
    job = stored(api, SEED)
    name = job.metadata.name
    pods = create_children(api, job)
    assert set(pods) == {
        f"{name}-master",
        *(f"{name}-pserver-{i}" for i in range(3)),
        *(f"{name}-trainer-{i}" for i in range(3)),
    }
    usual = {"limits": {"cpu": "800m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "600Mi"}}
    for pod in pods.values():
        role = pod["metadata"]["labels"][constants.ROLE_LABEL]
        gpu = {"nvidia.com/gpu": "1"} if role == "trainer" else {}
        main = pod["spec"]["containers"][0]
        assert main["name"] == role
        resources = {part: {k: str(v) for k, v in amounts.items()} for part, amounts in main["resources"].items()}
        assert resources == {part: {**amounts, **gpu} for part, amounts in usual.items()}
        assert pod["metadata"]["ownerReferences"][0]["uid"] == job.metadata.uid


@pytest.mark.parametrize(
    "label", constants.ROLE_JOB_LABELS.values(), ids=[f"the {role}s" for role in constants.ROLE_JOB_LABELS]
)
@pytest.mark.rule("TJ:2.2")
def test_paddles_labels_find_the_pods_of_each_role(api, label):
    job = stored(api, SEED)
    create_children(api, job)
    found = api.get(PODS.path(api.namespace), labelSelector=f"{label}={job.metadata.name}").body["items"]
    roles = {pod["metadata"]["labels"][constants.ROLE_LABEL] for pod in found}
    assert [constants.ROLE_JOB_LABELS[role] for role in roles] == [label]
    assert len(found) == (1 if label == constants.ROLE_JOB_LABELS[constants.MASTER] else 3)


# --- other jobs ------------------------------------------------------------------------------------------------------------
EVERYTHING: Json = {
    "image": "mine:1",
    "imagePullPolicy": "IfNotPresent",
    "port": 9000,
    "ports_num": 3,
    "ports_num_for_sparse": 2,
    "passes": 2,
    "volumes": [{"name": "data", "emptyDir": {}}],
    "VolumeMounts": [{"name": "data", "mountPath": "/data"}],
    "imagePullSecrets": [{"name": "registry"}],
    "schedulerName": "another",
    "podGroupName": "gang",
}
ROLE: Json = {
    "envs": {"LD_LIBRARY_PATH": "/lib"},
    "env": [{"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "gracePeriodSeconds": 90,
    "preStopCmd": ["/bin/save"],
    "livenessProbe": {"exec": {"command": ["true"]}},
    "readinessProbe": {"tcpSocket": {"port": 9000}},
    "resources": {"requests": {"cpu": "1"}},
}
TEMPLATE: Json = {
    "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "x"}},
    "spec": {
        "initContainers": [{"name": "first", "image": "busybox"}],
        "containers": [
            {
                "name": "trainer",
                "securityContext": {"runAsNonRoot": True},
                "volumeMounts": [{"name": "s", "mountPath": "/s"}],
            },
            {"name": "beside", "image": "busybox", "resources": {"limits": {"cpu": "1"}}},
        ],
        "volumes": [{"name": "s", "emptyDir": {"medium": "Memory"}}],
    },
}
BARE: Json = {"metadata": {}, "spec": {"trainer": {"min-instance": 2, "resources": {"requests": {"cpu": "1"}}}}}
JOBS: dict[str, Json] = {
    "trainers alone": {},
    "all fields of a job and its roles": {
        **EVERYTHING,
        "trainer": {"min-instance": 1, "entrypoint": "run", **ROLE, "template": TEMPLATE},
        "pserver": {"min-instance": 2, **ROLE},
        "master": ROLE,
    },
    "the host's network": {"hostNetwork": True, "fault_tolerant": True, "pserver": {"min-instance": 1, **ROLE}},
    "torchrun": {"framework": "torchrun", "trainer": {**BARE["spec"]["trainer"], "entrypoint": "torchrun a.py"}},
    "a program of one's own in every role": {
        "framework": "generic",
        "trainer": {**BARE["spec"]["trainer"], "entrypoint": "python a.py", "workspace": "/work"},
        "pserver": {"min-instance": 1, "resources": {"requests": {"cpu": "1"}}},
        "master": {"entrypoint": "python queue.py"},
    },
}


@pytest.mark.parametrize("spec", JOBS.values(), ids=JOBS)
def test_everything_built_is_kept_as_it_was_built(api, spec):
    manifest = {"apiVersion": TRAININGJOBS.api_version, "kind": TRAININGJOBS.kind, **BARE}
    job = stored(api, manifest, **spec)
    size = size_for(job, job.desired_replicas())
    built = {
        build_pod(job, role, index, size, CONFIG)["metadata"]["name"]: build_pod(job, role, index, size, CONFIG)
        for role, count in roles_of(job, size).items()
        for index in range(count)
    }
    kept = create_children(api, job)
    assert kept.keys() == built.keys()
    for name, pod in built.items():
        assert differences(pod, kept[name]) == []


def test_a_new_size_is_a_new_membership_and_nothing_else(api):
    job = stored(api, SEED)
    create(api, CONFIG_MAPS, build_membership(job, size_for(job, 3), CONFIG))
    wanted = build_membership(job, size_for(job, 5), CONFIG)
    path = f"{CONFIG_MAPS.path(api.namespace)}/{wanted['metadata']['name']}"
    answer = api.patch(path, {"data": wanted["data"]}, "application/merge-patch+json")
    assert answer.status == 200, answer.body
    assert answer.body["data"] == wanted["data"]
    assert len(answer.body["data"]["trainers"].splitlines()) == 5
