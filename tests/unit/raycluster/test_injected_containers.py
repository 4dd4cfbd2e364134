"""A container that admission puts before Ray's changes neither which pods are replaced nor what is reported about them."""

import msgspec
import pytest

from raytide.api.config import PodConfig
from raytide.api.pod import decode_pod
from raytide.autoscaler.state.pod_startup import has_ray_started
from raytide.raycluster.endings import how_it_ended
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template, worker_pod
from support.builders import group, parsed, template

pytestmark = pytest.mark.rule("FD:RC3-2")

PROXY = {"name": "istio-proxy", "image": "istio/proxyv2", "env": [{"name": "POD_NAME", "value": "x"}]}
ENDED = {"terminated": {"exitCode": 1, "reason": "Error"}}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
RAY = "my-ray"


def live(role: str, *, ray, proxy, autoscaled: bool = False, is_kuberays: bool = False):
    """The view of a pod that was created by the operator, and mutated by a webhook before it was stored."""
    own = template(RAY)
    own["spec"]["restartPolicy"] = "Never"
    cluster = parsed(
        group(template=own), headGroupSpec={"rayStartParams": {}, "template": own}, enableInTreeAutoscaling=autoscaled
    )
    if role == "head":
        pod = build_head_pod(cluster, PodConfig(), "demo-head")
    else:
        pod = worker_pod(build_worker_template(cluster, cluster.spec.worker_group_specs[0], PodConfig()), "demo-w", 0)
    containers = [PROXY, *pod["spec"]["containers"]]
    states = {"istio-proxy": proxy, RAY: ray}
    statuses = [{"name": each["name"], "state": states.get(each["name"], RUNNING)} for each in containers]
    spec = {**pod["spec"], "containers": containers, "restartPolicy": "Never"}
    status = {"phase": "Running", "containerStatuses": statuses}
    return decode_pod(msgspec.json.encode({**pod, "spec": spec, "status": status}))


@pytest.mark.parametrize("autoscaled", [False, True])
@pytest.mark.parametrize("role", ["head", "worker"])
def test_the_ray_container_is_the_one_that_was_created_as_such(role, autoscaled):
    assert live(role, ray=RUNNING, proxy=RUNNING, autoscaled=autoscaled).ray_container == RAY


@pytest.mark.parametrize("role", ["head", "worker"])
def test_a_pod_is_replaced_when_ray_ends_and_not_when_the_proxy_ends(role):
    assert live(role, ray=ENDED, proxy=RUNNING).is_finished
    assert not live(role, ray=RUNNING, proxy=ENDED).is_finished


def test_the_event_names_the_ray_container():
    found = how_it_ended(live("worker", ray=ENDED, proxy=ENDED))
    assert f"container {RAY} ended with exit code 1 (Error)" in found


def test_the_ray_node_of_a_running_proxy_is_not_waited_for():
    assert not has_ray_started(live("worker", ray={"waiting": {"reason": "PodInitializing"}}, proxy=RUNNING))


@pytest.mark.parametrize(
    ("containers", "node_type", "expected"),
    [
        pytest.param([PROXY, {"name": "ray-worker"}], "worker", "ray-worker", id="KubeRay's usual name of a worker"),
        pytest.param([PROXY, {"name": "ray-head"}], "head", "ray-head", id="KubeRay's usual name of a head"),
        pytest.param([{"name": "main"}, {"name": "logs"}], "worker", "main", id="the first"),
        pytest.param(
            [{"name": "main", "env": None}, {"name": "ray-head"}], "worker", "main", id="the name of the other role"
        ),
        pytest.param([], "worker", "", id="no container"),
        pytest.param(
            [{"name": "ray-worker"}, {"name": "main", "env": [{"name": "KUBERAY_GEN_RAY_START_CMD"}]}],
            "worker",
            "main",
            id="the one that KubeRay or Raytide gave the command of ray start",
        ),
        pytest.param(
            [
                PROXY,
                {"name": "autoscaler", "env": [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD"}]},
                {"name": "ray-head"},
            ],
            "head",
            "ray-head",
            id="not the autoscaler",
        ),
    ],
)
def test_pods_of_another_operator(containers, node_type, expected):
    pod = {"metadata": {"name": "p", "labels": {"ray.io/node-type": node_type}}, "spec": {"containers": containers}}
    assert decode_pod(msgspec.json.encode(pod)).ray_container == expected
