"""The computed status equals the one KubeRay wrote for the same RayCluster and the same pods.

The pods are made from our own plan; as many workers are Ready as the record says, and the head is unless it says
otherwise. Raytide adds conditions that explain failures (docs/compatibility.md).
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import yaml

from raytide.api import constants
from raytide.api.config import ClusterConfig
from raytide.api.pod import PodCondition, pod_from_manifest
from raytide.api.raycluster import RayCluster
from raytide.api.service import service_from_manifest
from raytide.raycluster.desired_replicas import scaling_of
from raytide.raycluster.observed import observe
from raytide.raycluster.plan import plan
from raytide.raycluster.status import SHOWN_AT_0, status

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = ["01", "02", "11", "12", "13", "14", "15", "19", "20", "24", "25", "26", "27", "28", "33", "38"]
OURS = {constants.WORKERS_MISSING, constants.UNSUPPORTED}
"""Conditions that KubeRay does not have."""
NOT_COMPARED = {"lastUpdateTime", "stateTransitionTimes", "diagnoses"}
"""Times, and a field that KubeRay does not have."""
READY = PodCondition("True")


def load(number):
    (spec,) = (GOLDEN / "specs").glob(f"{number}-*.yaml")
    objects = [obj for obj in yaml.safe_load_all(spec.read_text()) if obj["kind"] == "RayCluster"]
    record = json.loads((GOLDEN / "kuberay" / f"{spec.stem}.json").read_text())
    return objects[0], record


def defaulted(obj):
    """What the CRD's defaults add (RC §1.2)."""
    for group in obj["spec"].get("workerGroupSpecs") or ():
        for field, value in (("replicas", 0), ("minReplicas", 0), ("maxReplicas", 2147483647), ("numOfHosts", 1)):
            group.setdefault(field, value)
    obj["metadata"] |= {"namespace": "NS", "uid": "u", "generation": 1}
    return obj


def live(manifests, record):
    """The pods as the recorded node kubelets left them."""
    ready = record.get("availableWorkerReplicas", 0)
    head = next(c for c in record["conditions"] if c["type"] == constants.HEAD_POD_READY)
    for manifest in manifests:
        pod = pod_from_manifest(manifest)
        is_ready = head["status"] == "True" if pod.is_head else ready > 0
        ready -= pod.is_worker
        fields = {"phase": "Running", "ready": READY} if is_ready else {"phase": "Pending"}
        yield msgspec.structs.replace(pod, uid=pod.name, **fields)


def live_service(manifest, recorded):
    """The service with what the API server gave it: its address and node ports."""
    ports = {port["name"]: port for port in manifest["spec"]["ports"]}
    for name, endpoint in recorded.get("endpoints", {}).items():
        if manifest["spec"].get("type") in ("NodePort", "LoadBalancer"):
            ports[name] = {**ports[name], "nodePort": int(endpoint)}
    return service_from_manifest({**manifest, "spec": {**manifest["spec"], "ports": list(ports.values())}})


@pytest.mark.rule("RC §1.5", "RC §1.6")
@pytest.mark.parametrize("number", FILES)
def test_the_status_is_that_of_kuberay(number):
    obj, record = load(number)
    cluster = RayCluster.parse(defaulted(obj))
    (recorded,) = record["status"].values()
    names_drawn = iter(range(1000))
    first = plan(cluster, observe("u", pods=(), services=()), ClusterConfig(), lambda p: f"{p}{next(names_drawn):05d}")
    manifests = [action.manifest for action in first.actions]
    observed = observe(
        "u",
        pods=live((m for m in manifests if m["kind"] == "Pod"), recorded),
        services=[live_service(m, recorded) for m in manifests if m["kind"] == "Service"],
    )
    again = plan(cluster, observed, ClusterConfig(), str)
    assert (again.actions, again.violations) == ((), ())

    computed = status(
        cluster, observed, again, (), datetime(2026, 1, 1, tzinfo=UTC), scaling=scaling_of(cluster, observed)
    )
    conditions = [c for c in computed.pop("conditions") if c["type"] not in OURS]
    expected = dict(recorded)
    assert by_type(conditions) == by_type(expected.pop("conditions"))
    computed["head"] = {"serviceName": computed["head"]["serviceName"]}  # addresses and names are not recorded
    ours = {key for key in SHOWN_AT_0 if computed[key] == 0 and key not in expected}  # KubeRay omits a 0
    assert {key: value for key, value in computed.items() if key not in NOT_COMPARED | ours} == expected


def by_type(conditions):
    return {c["type"]: (c["status"], c["reason"]) for c in conditions}
