"""What a kubelet reports: phase, conditions, container states, quality of service."""

from datetime import timedelta

import pytest

from raytide_sandbox.kubelet.containers import ContainerRecord, Running, Terminated, Waiting
from raytide_sandbox.kubelet.podspec import PodSpecError, read_pod
from raytide_sandbox.kubelet.status import PodFacts, build_status, invalid_pod_status, pod_phase, qos_class
from support.kubelet_fakes import EPOCH, build_pod

WAITING = ContainerRecord(Waiting("ContainerCreating"))
READY = ContainerRecord(Running(EPOCH), is_ready=True, is_started=True)
UNREADY = ContainerRecord(Running(EPOCH), is_started=True)
DONE = ContainerRecord(Terminated(0, EPOCH, EPOCH), is_ready=True)
BROKEN = ContainerRecord(Terminated(1, EPOCH, EPOCH))
CRASHING = ContainerRecord(Waiting("CrashLoopBackOff"), last=Terminated(1, EPOCH))
FACTS = PodFacts(host_ip="1.1.1.1", pod_ip="2.2.2.2", has_sandbox=True, start_time=EPOCH)
OVER = PodFacts(host_ip="1.1.1.1", pod_ip="2.2.2.2", start_time=EPOCH, is_final=True)


def status(records, facts=FACTS, previous=None, now=EPOCH, **spec):
    inits = [name for name in records if name.startswith("i")]
    mains = [name for name in records if not name.startswith("i")]
    pod = read_pod(build_pod(*mains, inits=inits, **spec))
    return build_status(pod, records, facts, previous or {}, now)


def condition(found, kind):
    return next(c for c in found["conditions"] if c["type"] == kind)


@pytest.mark.parametrize(
    ("records", "facts", "policy", "expected"),
    [
        pytest.param({"a": WAITING}, FACTS, "Always", "Pending", id="nothing has started"),
        pytest.param({"a": READY, "b": WAITING}, FACTS, "Always", "Pending", id="one has not started yet"),
        pytest.param({"a": READY, "b": READY}, FACTS, "Always", "Running", id="all run"),
        pytest.param({"a": UNREADY}, FACTS, "Always", "Running", id="running need not be ready"),
        pytest.param({"a": CRASHING}, FACTS, "Always", "Running", id="a crash loop counts as running"),
        pytest.param({"a": READY, "b": BROKEN}, FACTS, "Never", "Running", id="one ended, one still runs"),
        pytest.param({"i1": READY, "a": WAITING}, FACTS, "Always", "Pending", id="an init container runs"),
        pytest.param({"i1": CRASHING, "a": WAITING}, FACTS, "Always", "Pending", id="an init container crashes"),
        pytest.param({"i1": DONE, "a": READY}, FACTS, "Always", "Running", id="init containers have done their part"),
        pytest.param({"i1": BROKEN, "a": WAITING}, OVER, "Never", "Failed", id="an init container failed for good"),
        pytest.param({"a": DONE, "b": DONE}, OVER, "Never", "Succeeded", id="all ended well"),
        pytest.param({"a": DONE, "b": BROKEN}, OVER, "Never", "Failed", id="one ended badly"),
        pytest.param({"a": WAITING}, OVER, "Always", "Failed", id="deleted before it started"),
    ],
)
def test_the_phase_is(records, facts, policy, expected):
    assert status(records, facts, restartPolicy=policy)["phase"] == expected


@pytest.mark.parametrize("final", ["Succeeded", "Failed"])
def test_a_final_phase_never_changes(final):
    pod = read_pod(build_pod("a"))
    assert pod_phase(pod, {"a": READY}, FACTS, final) == final


@pytest.mark.parametrize(
    ("records", "facts", "kind", "expected"),
    [
        pytest.param({"a": READY}, FACTS, "Ready", ("True", None), id="ready"),
        pytest.param({"a": READY, "b": UNREADY}, FACTS, "Ready", ("False", "ContainersNotReady"), id="one is not"),
        pytest.param({"a": DONE}, OVER, "Ready", ("False", "PodCompleted"), id="a pod that succeeded"),
        pytest.param({"a": BROKEN}, OVER, "ContainersReady", ("False", "PodFailed"), id="a pod that failed"),
        pytest.param(
            {"i1": READY, "a": WAITING}, FACTS, "Initialized", ("False", "ContainersNotInitialized"), id="init"
        ),
        pytest.param({"i1": DONE, "a": WAITING}, FACTS, "Initialized", ("True", None), id="initialized"),
        pytest.param({"a": READY}, FACTS, "PodReadyToStartContainers", ("True", None), id="a sandbox with an address"),
        pytest.param({"a": DONE}, OVER, "PodReadyToStartContainers", ("False", None), id="no sandbox any more"),
        pytest.param({"a": WAITING}, FACTS, "PodScheduled", ("True", None), id="bound, or we would not have it"),
    ],
)
def test_a_condition_is(records, facts, kind, expected):
    found = condition(status(records, facts, restartPolicy="Never"), kind)
    assert (found["status"], found.get("reason")) == expected


def test_the_message_names_what_is_not_ready():
    found = condition(status({"a": UNREADY, "b": READY, "d": WAITING}), "ContainersReady")
    assert found["message"] == "containers with unready status: [a d]"


def test_a_condition_keeps_its_time_while_it_stays_and_gets_a_new_one_when_it_changes():
    first = status({"a": UNREADY})
    later = status({"a": READY}, previous=first, now=EPOCH + timedelta(minutes=5))
    assert condition(later, "Initialized")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert condition(later, "Ready")["lastTransitionTime"] == "2026-01-01T00:05:00Z"


def test_the_same_facts_give_the_same_status_at_any_time():
    first = status({"a": READY})
    assert status({"a": READY}, previous=first, now=EPOCH + timedelta(hours=1)) == first


def test_conditions_of_others_are_kept_and_a_readiness_gate_waits_for_one():
    gate = {"type": "example.com/lit", "status": "False"}
    dark = status({"a": READY}, previous={"conditions": [gate]}, readinessGates=[{"conditionType": gate["type"]}])
    assert gate in dark["conditions"]
    assert condition(dark, "Ready")["reason"] == "ReadinessGatesNotReady"
    lit = status(
        {"a": READY},
        previous={"conditions": [{**gate, "status": "True"}]},
        readinessGates=[{"conditionType": gate["type"]}],
    )
    assert condition(lit, "Ready")["status"] == "True"


def test_a_container_shows_its_state_and_the_one_before():
    record = ContainerRecord(
        Running(EPOCH, "x://1"), last=Terminated(137, EPOCH, EPOCH, message="bye"), restart_count=1, image_id="id"
    )
    shown = status({"a": record})["containerStatuses"][0]
    assert shown["state"] == {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    assert shown["lastState"]["terminated"] == {
        "exitCode": 137,
        "reason": "Error",
        "message": "bye",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:00Z",
    }
    assert (shown["restartCount"], shown["imageID"], shown["containerID"]) == (1, "id", "x://1")


def _sized(**resources):
    return {"name": "c", "resources": resources}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([_sized()], "BestEffort", id="no resources"),
        pytest.param([_sized(requests={"cpu": "0"})], "BestEffort", id="zero is nothing"),
        pytest.param([_sized(requests={"cpu": "1"})], "Burstable", id="only requests"),
        pytest.param([_sized(limits={"cpu": "1", "memory": "1Gi"})], "Guaranteed", id="limits alone are requests too"),
        pytest.param(
            [_sized(limits={"cpu": 1, "memory": "1Gi"}, requests={"cpu": "1000m", "memory": "1024Mi"})],
            "Guaranteed",
            id="the same amounts, spelled differently",
        ),
        pytest.param(
            [_sized(limits={"cpu": "2", "memory": "1Gi"}, requests={"cpu": "1"})], "Burstable", id="less than the limit"
        ),
        pytest.param([_sized(limits={"cpu": "many"})], "BestEffort", id="an unreadable amount counts as none"),
    ],
)
def test_the_quality_of_service_is(containers, expected):
    assert qos_class(read_pod(build_pod(*containers))) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"containers": []}, "spec.containers is empty", id="no containers"),
        pytest.param({"containers": ["x"]}, "spec.containers is not a list of objects", id="not objects"),
        pytest.param({"restartPolicy": "Sometimes"}, "spec.restartPolicy", id="an unknown restart policy"),
        pytest.param({"containers": [{"name": "a"}, {"name": "a"}]}, "two containers are named a", id="the same name"),
        pytest.param({"containers": [{"name": ""}]}, "a container has no name", id="no name"),
        pytest.param({"terminationGracePeriodSeconds": "soon"}, "whole number", id="no number"),
        pytest.param({"containers": [{"name": "a", "livenessProbe": {}}]}, "livenessProbe", id="an empty probe"),
        pytest.param(
            {"containers": [{"name": "a", "resources": {"limits": "2Gi"}}]}, "limits is not an", id="no limits"
        ),
        pytest.param({"containers": [{"name": "a", "command": "sleep 5"}]}, "command is not a list", id="a string"),
    ],
)
def test_a_bad_spec_is_named(spec, message):
    raw = build_pod("c")
    with pytest.raises(PodSpecError) as caught:
        read_pod({**raw, "spec": {**raw["spec"], **spec}})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [pytest.param(False, "false", id="n in YAML 1.1"), pytest.param(7, "7", id="a number")],
)
def test_a_name_that_yaml_has_changed_is_still_a_name(name, expected):
    assert read_pod(build_pod({"name": name})).containers[0].name == expected


def test_an_invalid_pod_fails_with_the_reason():
    found = invalid_pod_status("InvalidPodSpec", "spec.containers is empty", {}, EPOCH)
    assert (found["phase"], found["reason"], found["message"]) == (
        "Failed",
        "InvalidPodSpec",
        "spec.containers is empty",
    )
