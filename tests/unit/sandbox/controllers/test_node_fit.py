"""Requests and constraints of pods against nodes, as tables."""

from typing import Any

import pytest

from raytide_sandbox.controllers.node_fit import build_capacity, pod_requests, rule_out, unschedulable_message


def container(*, limits: dict[str, str] | None = None, restart: str | None = None, **requests: str) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits or {}}
    return {"name": "c", "resources": resources, **({"restartPolicy": restart} if restart else {})}


@pytest.mark.parametrize(
    ("spec", "cpu_millis"),
    [
        pytest.param({"containers": [container(cpu="500m"), container(cpu="1")]}, 1500, id="containers add up"),
        pytest.param(
            {"initContainers": [container(cpu="3"), container(cpu="2")], "containers": [container(cpu="1")]},
            3000,
            id="the hungriest init container counts alone",
        ),
        pytest.param(
            {"initContainers": [container(cpu="1")], "containers": [container(cpu="2")]},
            2000,
            id="a modest init container does not count",
        ),
        pytest.param(
            {"initContainers": [container(cpu="1", restart="Always")], "containers": [container(cpu="2")]},
            3000,
            id="a sidecar runs together with the containers",
        ),
        pytest.param(
            {
                "initContainers": [container(cpu="1", restart="Always"), container(cpu="5")],
                "containers": [container(cpu="2")],
            },
            6000,
            id="an init container runs together with the sidecars before it",
        ),
        pytest.param(
            {"containers": [container(limits={"cpu": "4"})]}, 4000, id="a limit is a request when there is none"
        ),
        pytest.param(
            {"containers": [container(limits={"cpu": "4"}, cpu="1")]},
            1000,
            id="a request takes precedence over the limit",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, 1250, id="overhead comes on top"
        ),
    ],
)
def test_requests(spec, cpu_millis):
    assert pod_requests(spec) == {"cpu": cpu_millis, "pods": 1000}


def node(**content: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "labels": content.pop("labels", {})},
        "spec": content.pop("spec", {}),
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "2"}, **content},
    }


def affinity(**expression: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [expression]}] if expression else [{}]
    required = {"nodeSelectorTerms": terms}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


GPU_TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
REPELLED = "node(s) had untolerated taint {gpu: yes}"
MISMATCH = "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("spec", "on", "reasons"),
    [
        pytest.param({}, {}, [], id="a pod without wishes fits"),
        pytest.param({"containers": [container(cpu="4")]}, {}, [], id="a pod may fill the node exactly"),
        pytest.param(
            {"containers": [container(cpu="4001m", memory="9Gi")]},
            {},
            ["Insufficient cpu", "Insufficient memory"],
            id="every scarce resource is named",
        ),
        pytest.param(
            {"containers": [container(**{"nvidia.com/gpu": "1"})]},
            {},
            ["Insufficient nvidia.com/gpu"],
            id="a resource the node never heard of is scarce",
        ),
        pytest.param({"containers": [container(**{"nvidia.com/gpu": "0"})]}, {}, [], id="asking for none is no wish"),
        pytest.param({}, {"spec": {"unschedulable": True}}, ["node(s) were unschedulable"], id="cordoned"),
        pytest.param(
            {"tolerations": [{"operator": "Exists"}]}, {"spec": {"unschedulable": True}}, [], id="tolerates everything"
        ),
        pytest.param({}, {"spec": {"taints": [GPU_TAINT]}}, [REPELLED], id="a taint repels"),
        pytest.param(
            {}, {"spec": {"taints": [{**GPU_TAINT, "effect": "PreferNoSchedule"}]}}, [], id="a preference repels no pod"
        ),
        pytest.param(
            {"tolerations": [{"key": "gpu", "value": "yes"}]},
            {"spec": {"taints": [GPU_TAINT]}},
            [],
            id="an equal toleration helps",
        ),
        pytest.param(
            {"tolerations": [{"key": "gpu", "value": "no"}]},
            {"spec": {"taints": [GPU_TAINT]}},
            [REPELLED],
            id="a toleration of another value does not",
        ),
        pytest.param(
            {"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]},
            {"spec": {"taints": [GPU_TAINT]}},
            [REPELLED],
            id="a toleration of another effect does not",
        ),
        pytest.param(
            {},
            {"conditions": [{"type": "Ready", "status": "Unknown"}]},
            ["node(s) had untolerated taint {node.kubernetes.io/not-ready: }"],
            id="a node that is not ready repels",
        ),
        pytest.param({}, {"conditions": [{"type": "Ready", "status": "True"}]}, [], id="a ready node does not"),
        pytest.param({"nodeSelector": {"zone": "a"}}, {"labels": {"zone": "a"}}, [], id="the selector matches"),
        pytest.param(
            {"nodeSelector": {"zone": "a"}}, {"labels": {"zone": "b"}}, [MISMATCH], id="the selector does not"
        ),
        pytest.param(affinity(), {}, [MISMATCH], id="an empty affinity term matches nothing"),
        pytest.param(
            affinity(key="zone", operator="In", values=["a", "b"]), {"labels": {"zone": "b"}}, [], id="affinity In"
        ),
        pytest.param(
            affinity(key="zone", operator="NotIn", values=["b"]), {"labels": {"zone": "b"}}, [MISMATCH], id="NotIn"
        ),
        pytest.param(affinity(key="zone", operator="Exists"), {}, [MISMATCH], id="Exists"),
        pytest.param(affinity(key="zone", operator="DoesNotExist"), {}, [], id="DoesNotExist"),
        pytest.param(affinity(key="size", operator="Gt", values=["3"]), {"labels": {"size": "4"}}, [], id="Gt"),
        pytest.param(affinity(key="size", operator="Lt", values=["3"]), {"labels": {"size": "4"}}, [MISMATCH], id="Lt"),
        pytest.param(
            affinity(key="size", operator="Lt", values=["3"]), {"labels": {"size": "x"}}, [MISMATCH], id="Lt x"
        ),
    ],
)
def test_rule_out(spec, on, reasons):
    assert rule_out(spec, pod_requests(spec), build_capacity(node(**on))) == reasons


def test_places_among_the_nodes_pods_run_out_too():
    capacity = build_capacity(node())
    capacity.take(pod_requests({}))
    capacity.take(pod_requests({}))
    assert rule_out({}, pod_requests({}), capacity) == ["Too many pods"]


@pytest.mark.parametrize(
    ("reasons", "message"),
    [
        ([], "no nodes available to schedule pods"),
        ([["Insufficient cpu"]] * 3, "0/3 nodes are available: 3 Insufficient cpu."),
        (
            [["Insufficient cpu", "Insufficient memory"], ["Insufficient cpu"], [MISMATCH]],
            f"0/3 nodes are available: 1 Insufficient memory, 1 {MISMATCH}, 2 Insufficient cpu.",
        ),
    ],
)
def test_message(reasons, message):
    assert unschedulable_message(reasons) == message
