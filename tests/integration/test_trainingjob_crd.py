"""TrainingJobs at the API server, embedded and real: accepted and rejected specs, `scale`, and the columns."""

import copy
from pathlib import Path

import pytest
import yaml

from integration.clusters import APIS
from integration.probe.client import APPLY, Client, eventually
from integration.probe.servers import embedded, from_kubeconfig
from raytide.api.meta import CUSTOM_RESOURCE_DEFINITIONS, TRAININGJOBS
from support.training_builders import changed_seed

ROOT = Path(__file__).parents[2]
CRD = yaml.load((ROOT / "crds" / "paddlepaddle.org_trainingjobs.yaml").read_text(), Loader=yaml.CSafeLoader)
SEED = yaml.safe_load((ROOT / "samples" / "trainingjob-seed.yaml").read_text())
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
JOBS = TRAININGJOBS.path("default")
DRY = {"dryRun": "All", "fieldValidation": "Strict"}


@pytest.fixture(scope="module", params=APIS)
def api(request):
    """A client of an API server that serves TrainingJobs."""
    if request.param == "embedded":
        with embedded() as endpoint:
            yield from served(Client(endpoint, "default"))
    else:
        plane = request.getfixturevalue("kube_plane")
        yield from served(Client(from_kubeconfig(str(plane.kubeconfig)), "default"))


def served(client):
    install(client, CRD)
    eventually(lambda: client.get(JOBS).status == 200, "TrainingJobs are served")
    yield client
    client.close()


def install(client, crd):
    path = f"{CUSTOM_RESOURCE_DEFINITIONS.path()}/{crd['metadata']['name']}"
    answer = client.patch(path, crd, APPLY, fieldManager="tests", force="true")
    assert answer.status in (200, 201), answer.body


@pytest.fixture
def job(api):
    """The seed's example, stored."""
    answer = api.post(JOBS, SEED)
    assert answer.status == 201, answer.body
    yield f"{JOBS}/{SEED['metadata']['name']}"
    api.delete(f"{JOBS}/{SEED['metadata']['name']}")


def changed(name="job-2", **changes):
    return changed_seed(name, **changes)


# --- what it takes -------------------------------------------------------------------------------------------------------


def test_the_example_of_the_design_is_stored_as_it_is_written(api, job):
    assert api.get(job).body["spec"] == SEED["spec"]


NULLS = dict.fromkeys(("replicaSpec", "imagePullSecrets", "envs", "grace_period_seconds", "pre_stop_cmd"))
EXPORTED = {
    **changed(
        image="paddle",
        host_network=False,
        port=7164,
        ports_num=1,
        ports_num_for_sparse=1,
        trainer_port=0,
        trainer_ports_num=0,
        fault_tolerant=True,
        local_job=False,
        passes=1,
        volumes=None,
        VolumeMounts=None,
        mountpath="",
        nfsmount="",
        annotations={"usergroupid": "", "userid": "", "priority": "", "scheduler": "", "walltime": 0},
        is_nccl=False,
        frame_work=None,
        matrix=False,
    )["spec"]
}
for _role in ("master", "pserver", "trainer"):
    EXPORTED[_role] = {
        **EXPORTED[_role],
        **NULLS,
        "tolerations": None,
        "node_selector": None,
        "liveness_probe": None,
        "readiness_probe": None,
        "etcd-endpoint": "",
    }

TAKEN = {
    "what Go wrote, nulls and all": EXPORTED,
    "camel case": changed(
        **{
            "trainer__min-instance": ...,
            "trainer__max-instance": ...,
            "trainer__minInstance": 1,
            "trainer__maxInstance": 2,
        }
    )["spec"],
    "both spellings that agree": changed(trainer__minInstance=3)["spec"],
    "a bare ratio": changed(pserver__scaling="Ratio")["spec"],
    "a ratio": changed(pserver__scaling={"mode": "Ratio", "trainersPerPserver": 2})["spec"],
    "sizes within the bounds": changed(scaling={"allowedSizes": [3, 4, 6], "step": 1})["spec"],
    "a template of one container": changed(
        trainer__template={
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "trainer", "tty": True}]},
        }
    )["spec"],
    "not fault tolerant and of one size": changed(**{"fault_tolerant": False, "trainer__max-instance": 3})["spec"],
    "quantities as numbers": changed(trainer__resources={"requests": {"cpu": 1, "memory": 1000}})["spec"],
}


@pytest.mark.rule("TJ:3-20")
@pytest.mark.parametrize("spec", TAKEN.values(), ids=TAKEN)
def test_taken_without_losing_a_field(api, spec):
    answer = api.post(JOBS, {**changed(), "spec": spec}, **DRY)
    assert answer.status == 201, answer.body
    assert answer.body["spec"] == spec


# --- what it rejects -----------------------------------------------------------------------------------------------------

REJECTED = {
    "no trainer": (changed(trainer=...), "spec.trainer"),
    "no minimum": (changed(**{"trainer__min-instance": ...}), "spec.trainer.min-instance"),
    "no trainers at all": (changed(**{"trainer__min-instance": 0}), "spec.trainer.min-instance"),
    "min above max": (changed(**{"trainer__min-instance": 7}), "spec.trainer.min-instance"),
    "min above max of parameter servers": (changed(**{"pserver__max-instance": 2}), "spec.pserver.min-instance"),
    "min above max in camel case": (
        changed(**{"trainer__min-instance": ..., "trainer__minInstance": 7}),
        "spec.trainer.min-instance",
    ),
    "a negative count": (changed(**{"pserver__min-instance": -1}), "spec.pserver.min-instance"),
    "a count as a word": (changed(**{"trainer__max-instance": "six"}), "spec.trainer.max-instance"),
    "two spellings that differ": (changed(trainer__minInstance=4), "spec.trainer.minInstance"),
    "two spellings of ports that differ": (changed(ports_num=1, portsNum=2), "spec.portsNum"),
    "elastic, yet not fault tolerant": (changed(fault_tolerant=False), "spec.fault_tolerant"),
    "a size below the minimum": (changed(scaling={"allowedSizes": [2, 4]}), "spec.scaling.allowedSizes"),
    "a step of nothing": (changed(scaling={"step": 0}), "spec.scaling.step"),
    "a quantity of no unit": (
        changed(trainer__resources={"limits": {"cpu": "lots"}}),
        "spec.trainer.resources.limits.cpu",
    ),
    "a port beyond all ports": (changed(port=65535), "spec.port"),
    "an unknown policy": (changed(startPolicy="Soon"), "spec.startPolicy"),
    "a name of host names too long": (changed("j" * 54), "metadata.name"),
    "a name that begins with a digit": (changed("1job"), "metadata.name"),
    "no spec": ({key: value for key, value in SEED.items() if key != "spec"}, "spec"),
}


@pytest.mark.rule("TJ:3-2")
@pytest.mark.parametrize(("obj", "field"), REJECTED.values(), ids=REJECTED)
def test_rejected_with_the_field(api, obj, field):
    answer = api.post(JOBS, obj, **DRY)
    assert answer.status == 422, answer.body
    assert field in answer.body["message"]


def test_an_edit_that_makes_a_valid_job_invalid_is_rejected(api, job):
    answer = api.patch(job, {"spec": {"trainer": {"max-instance": 1}}})
    assert answer.status == 422
    assert "spec.trainer.min-instance" in answer.body["message"]


def is_validated(api, status):
    """Whether what has no trainer at all gets that answer."""
    return api.post(JOBS, {**SEED, "spec": {}}, dryRun="All").status == status


@pytest.fixture
def broken_job(api):
    """A job that no rule would take, stored under a CRD that took everything."""
    careless = copy.deepcopy(CRD)
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    careless["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = anything
    broken = changed(fault_tolerant=False, **{"trainer__min-instance": 9, "pserver__minInstance": 7})
    install(api, careless)
    eventually(lambda: is_validated(api, 201), "the careless CRD judges", 60)
    assert api.post(JOBS, broken).status == 201
    install(api, CRD)
    eventually(lambda: is_validated(api, 422), "our CRD judges", 60)
    yield f"{JOBS}/{broken['metadata']['name']}"
    api.delete(f"{JOBS}/{broken['metadata']['name']}")


def test_a_stored_invalid_job_can_get_a_status_and_be_corrected(api, broken_job):
    invalid = {"phase": "Pending", "waiting": "InvalidSpec"}
    assert api.patch(f"{broken_job}/status", {"status": invalid}).status == 200
    assert api.patch(broken_job, {"metadata": {"annotations": {"a": "b"}}}).status == 200
    assert api.patch(broken_job, {"spec": {"suspend": True}}).status == 200
    assert api.patch(f"{broken_job}/scale", {"spec": {"replicas": 4}}).status == 200
    half = {"spec": {"pserver": {"minInstance": None}}}
    assert api.patch(broken_job, half).status == 200
    sound = {"spec": {"fault_tolerant": True, "trainer": {"min-instance": 2}}}
    assert api.patch(broken_job, sound).status == 200
    again = api.patch(broken_job, {"spec": {"fault_tolerant": False}})
    assert (again.status, "spec.fault_tolerant" in again.body["message"]) == (422, True)


# --- scale ---------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3-21")
def test_scaling_a_job_of_no_size_yet_gives_it_one(api, job):
    answer = api.patch(f"{job}/scale", {"spec": {"replicas": 5}})
    assert (answer.status, answer.body["spec"]["replicas"]) == (200, 5)
    assert api.get(job).body["spec"]["trainer"]["replicas"] == 5
    assert api.get(job).body["spec"]["trainer"]["min-instance"] == 3


@pytest.mark.rule("TJ:3-21")
def test_scale_has_desired_and_current_replicas_and_the_selector(api, job):
    api.patch(f"{job}/scale", {"spec": {"replicas": 4}})
    status = {"trainer": {"replicas": 3}, "selector": "raytide.io/training-job=job-1"}
    assert api.patch(f"{job}/status", {"status": status}).status == 200
    scale = api.get(f"{job}/scale").body
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 4})
    assert scale["status"] == {"replicas": 3, "selector": "raytide.io/training-job=job-1"}


@pytest.mark.rule("TJ:3-21")
def test_scale_of_a_job_without_replicas_is_an_error(api, job):
    answer = api.get(f"{job}/scale")
    assert answer.status == 500
    wanted = 'Internal error occurred: the spec replicas field ".spec.trainer.replicas" does not exist'
    assert answer.body["message"] == wanted


def test_a_negative_size_is_rejected(api, job):
    answer = api.patch(f"{job}/scale", {"spec": {"replicas": -1}})
    assert answer.status == 422
    assert "spec.trainer.replicas: Invalid value: -1" in answer.body["message"]


# --- status and columns ----------------------------------------------------------------------------------------------------


def test_status_is_a_subresource(api, job):
    generation = api.get(job).metadata["generation"]
    api.patch(f"{job}/status", {"spec": {"suspend": True}, "status": {"phase": "Running"}})
    found = api.get(job).body
    assert found["metadata"]["generation"] == generation
    assert found["status"] == {"phase": "Running"}
    assert "suspend" not in found["spec"]


def test_kubectl_shows_size_score_and_what_is_waited_for(api, job):
    trainer = {"min": 3, "max": 6, "replicas": 4, "fulfillment": 0.33}
    api.patch(f"{job}/status", {"status": {"trainer": trainer, "phase": "Running", "waiting": "InsufficientGPU"}})
    table = api.call("GET", job, headers=TABLE).body
    shown = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert shown == ["Name", "Min", "Max", "Current", "Score", "Phase", "Waiting", "Age"]
    assert table["rows"][0]["cells"][:7] == ["job-1", 3, 6, 4, 0.33, "Running", "InsufficientGPU"]


def test_it_is_found_by_its_short_name(api):
    kinds = api.get("/apis/paddlepaddle.org/v1").body["resources"]
    (kind,) = (kind for kind in kinds if kind["name"] == "trainingjobs")
    assert (kind["shortNames"], kind["categories"]) == (["tj"], ["all"])
    assert {each["name"] for each in kinds} == {"trainingjobs", "trainingjobs/scale", "trainingjobs/status"}
