"""Why is it not scaling, answered from what a real scheduler, kubelet and API server say.

One RayCluster has four groups that get no workers, each for another reason. Its head runs no Ray: workers are judged without it. What
the autoscaler says of demand and of the GCS is in test_2_autoscaling.py (SC:S21).
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from cluster import PATIENCE, eventually, kubectl, names, within
from scenario import EXPLAINED_WITHIN_S, condition_of, events_of, is_documented, why, workers

CLUSTER = "stuck"
PRIORITY_CLASS = "e2e-without-quota"
GATE = "example.com/e2e-gate"
HEAD = {
    "name": "ray-head",
    "command": ["sleep", "infinity"],
    "readinessProbe": {"exec": {"command": ["true"]}},
    "livenessProbe": {"exec": {"command": ["true"]}},
}


@dataclass(frozen=True)
class Cause:
    """What is wrong with a group's template, and what has to be said about it."""

    stage: str
    message: str
    holder: str
    fix: str
    pod: Mapping[str, object]
    image: str = ""
    cpu: str = ""


CAUSES = {
    "SchedulingGated": Cause(
        "nodes", "non-empty scheduling gates", f"the controller of scheduling gate {GATE}", "removes the gate",
        {"schedulingGates": [{"name": GATE}]},
    ),
    "ImagePullFailed": Cause(
        "pods", "127.0.0.1:1/missing:1", "the image of wait-gcs-ready", "check name and tag", {}, image="127.0.0.1:1/missing:1"
    ),
    "QuotaExceeded": Cause(
        "pods", "exceeded quota: e2e-no-pods", "ResourceQuota e2e-no-pods", "raise ResourceQuota e2e-no-pods",
        {"priorityClassName": PRIORITY_CLASS},
    ),
    "Unschedulable": Cause(
        "nodes", "Insufficient cpu", "the size of the nodes", "add a larger node", {}, cpu="10k"
    ),
}  # fmt: skip


def group(reason, cause, image):
    """One worker that cannot come."""
    cpu = cause.cpu or "10m"
    container = {
        "name": "ray-worker", "image": cause.image or image,
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"cpu": cpu, "memory": "64Mi"}},
    }  # fmt: skip
    return {
        "groupName": reason.lower(), "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {},
        "template": {"spec": {"containers": [container], **cause.pod}},
    }  # fmt: skip


@pytest.fixture(scope="module")
def made_at(installation):
    """When the RayCluster was created; its quota and priority class end with the module."""
    namespace = installation.ray_namespace
    args = ("--dry-run=client", "-o", "json", "-n", namespace)
    cluster = json.loads(kubectl("create", *args, "-f", str(installation.sample)))
    cluster["metadata"] = {"name": CLUSTER, "annotations": {"ray.io/overwrite-container-cmd": "true"}}
    (head,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    head |= {
        **HEAD,
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}},
    }
    cluster["spec"]["workerGroupSpecs"] = [group(reason, cause, head["image"]) for reason, cause in CAUSES.items()]
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS},
        "value": -1,
    }
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [PRIORITY_CLASS]}
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "e2e-no-pods"},
        "spec": {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}},
    }  # fmt: skip
    try:
        kubectl("apply", "-f", "-", stdin=json.dumps(priority))
        kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(quota))
        kubectl("wait", "-n", namespace, "resourcequota/e2e-no-pods", "--for=jsonpath={.status.hard.pods}=0")
        kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(cluster))
        yield time.monotonic()
    finally:
        delete = ("delete", "--ignore-not-found", f"--timeout={within(60)}")
        kubectl(*delete, "raycluster", CLUSTER, "-n", namespace, deadline_s=70)
        kubectl(*delete, "resourcequota", "e2e-no-pods", "-n", namespace, deadline_s=70)
        kubectl(*delete, "priorityclass", PRIORITY_CLASS, deadline_s=70)


def test_each_group_is_blocked_for_its_reason_with_holder_and_cure(installation, made_at, figures):
    def check():
        code, answer = why(installation, CLUSTER)
        found = {blocker["reason"]: blocker for blocker in answer["blockers"]}
        return (code, found) if found.keys() >= CAUSES.keys() else None, (code, answer["blockers"])

    code, found = eventually(check, "every cause is named", 60)
    said_s = time.monotonic() - made_at
    figures.append(
        f"why: {said_s:.1f} s from the RayCluster to all of its four causes, of a real scheduler, kubelet and quota"
    )
    assert said_s < EXPLAINED_WITHIN_S * PATIENCE
    assert code == 4, "no node could hold the largest worker"
    (short,) = found["Unschedulable"]["shortages"]
    assert short["message"].startswith("needs 10k cpu on one node; the largest has "), short
    for reason, cause in CAUSES.items():
        blocker = found[reason]
        assert (blocker["group"], blocker["stage"]) == (reason.lower(), cause.stage)
        for field, part in (("message", cause.message), ("holder", cause.holder), ("cure", cause.fix)):
            assert part in blocker[field], blocker
        assert is_documented(installation, blocker), blocker
    assert len(names(workers(installation, CLUSTER))) == 3, "all but the one without quota exist"


@pytest.mark.usefixtures("made_at")
def test_the_condition_and_the_event_say_the_same(installation):
    def check():
        condition, notes = (
            condition_of(installation, CLUSTER, "WorkersMissing"),
            events_of(installation, CLUSTER, "WorkersMissing"),
        )
        return (condition, notes) if notes and condition.get("reason") in CAUSES else None, (condition, notes)

    condition, notes = eventually(check, "the condition and its event name a cause", 30)
    _, answer = why(installation, CLUSTER)
    blocker = next(each for each in answer["blockers"] if each["reason"] == condition["reason"])
    fix = f"held by: {blocker['holder']}; fix: {blocker['cure']}"
    for said in (condition["message"], notes[-1]):
        assert fix in said


@pytest.mark.usefixtures("made_at")
def test_a_gate_that_its_controller_removes_is_no_cause_any_more(installation):
    (gated,) = [name for name in names(workers(installation, CLUSTER)) if "schedulinggated" in name]
    patch = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
    kubectl("patch", "pod", gated, "-n", installation.ray_namespace, "--type=json", "-p", patch)

    def check():
        _, answer = why(installation, CLUSTER)
        reasons = sorted(blocker["reason"] for blocker in answer["blockers"])
        return "SchedulingGated" not in reasons, reasons

    eventually(check, "why does not name the gate", EXPLAINED_WITHIN_S)
