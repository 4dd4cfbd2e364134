"""The requests of a job's pod, as the sharing pass plans with them and as the pod is created."""

from typing import Any

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.config import JobConfig
from raytide.api.pod_requirements import pod_shape
from raytide.api.trainingjob_pods import Size, pod_outline
from raytide.trainingjob.manifests.objects import build_pod
from support.training_builders import parsed_job, seed_job

AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
SCHEDULED = ("containers", "initContainers", "nodeSelector", "affinity", "tolerations", "overhead")


def trainer(**fields: Any) -> dict[str, Any]:
    return pod_outline(parsed_job(trainer=fields), constants.TRAINER)["spec"]


def template(**spec: Any) -> dict[str, Any]:
    return {"template": {"spec": spec}}


def main(**container: Any) -> dict[str, Any]:
    return template(containers=[{"name": "trainer", **container}])


JOBS = {
    "the design document's example": {},
    "a selector, tolerations and another scheduler": {
        "schedulerName": "volcano",
        "trainer": {"min-instance": 1, "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
    },
    "a template with a sidecar, an init container and resources": {
        "trainer": {
            "min-instance": 1,
            "resources": {"requests": {"cpu": "1"}},
            **template(
                affinity=AFFINITY,
                overhead={"cpu": "100m"},
                initContainers=[{"name": "first", "resources": {"requests": {"memory": "8Gi"}}}],
                containers=[
                    {"name": "trainer", "resources": {"limits": {"alpha.kubernetes.io/nvidia-gpu": "2"}}},
                    {"name": "beside", "resources": {"limits": {"cpu": "500m"}}},
                ],
            ),
        }
    },
    "invalid pod-level resources": {
        "trainer": {"min-instance": 1, **template(containers=[{"name": "beside", "resources": {"limits": ["a"]}}])}
    },
    "text as resources": {
        "trainer": {"min-instance": 1, **template(containers=[{"name": "beside", "resources": "x"}])}
    },
}


@pytest.mark.parametrize("spec", JOBS.values(), ids=JOBS.keys())
@pytest.mark.parametrize("role", constants.ROLES)
@pytest.mark.parametrize("framework", ["paddle", "generic", "torchrun"])
def test_what_is_planned_with_is_what_is_created(spec, role, framework):
    job = seed_job(framework=framework, **spec)
    outline = pod_outline(job, role)["spec"]
    created = build_pod(job, role, 0, Size(3, 3), JobConfig())["spec"]
    for field in SCHEDULED:
        if field.lower().endswith("containers"):
            planned = [(each["name"], each.get("resources")) for each in outline.get(field, ())]
            assert planned == [(each["name"], each.get("resources")) for each in created.get(field, ())]
        else:
            assert outline.get(field) == created.get(field)


@pytest.mark.rule("TJ:3-18", "TJ:3-5")
def test_the_trainer_of_the_design_document_requests_a_gpu():
    shape = pod_shape(pod_outline(seed_job(), constants.TRAINER)["spec"])
    assert shape.requests == {"cpu": 500, "memory": 600 * 2**20, "nvidia.com/gpu": 1, "pods": 1}
    assert shape.limits == {"cpu": 800, "memory": 2**30, "nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"resources": {"limits": {"cpu": 2}}}, {"cpu": 2000}, id="a limit is a request"),
        pytest.param(
            main(resources={"requests": {"cpu": "3"}}),
            {"cpu": 3000, "memory": 2**30},
            id="the template takes precedence",
        ),
        pytest.param(
            template(containers=[{"name": "beside", "resources": {"requests": {"cpu": "1"}}}]),
            {"cpu": 2000, "memory": 2**30},
            id="a sidecar counts",
        ),
        pytest.param(
            main(resources={"limits": {"alpha.kubernetes.io/nvidia-gpu": 2}}),
            {"cpu": 1000, "memory": 2**30, "nvidia.com/gpu": 2},
            id="the old name in a template too",
        ),
        pytest.param(template(overhead={"cpu": "250m"}), {"cpu": 1250, "memory": 2**30}, id="overhead counts"),
    ],
)
def test_the_requests_of_a_trainer(fields, expected):
    assert pod_shape(trainer(**fields)).requests == {**expected, "pods": 1}


def test_claims_of_a_container_stay():
    fields = main(resources={"claims": [{"name": "gpu"}]})
    (container,) = trainer(**fields)["containers"]
    assert container["resources"]["claims"] == [{"name": "gpu"}]


def test_the_old_gpu_name_is_in_no_container():
    side = {"name": "beside", "resources": {"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}}}
    assert "alpha.kubernetes.io" not in str(trainer(**template(containers=[side])))
