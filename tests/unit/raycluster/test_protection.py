"""Where authentication, TLS or network policies cannot be had, no pod is created without them, and running pods stay."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from raytide.api import constants
from raytide.api.actions import Create
from raytide.api.conditions import find_condition
from raytide.api.config import DEFAULT_FEATURE_GATES, ClusterConfig, PodConfig
from raytide.api.meta import PODS, SERVICES
from raytide.api.raycluster import RayCluster
from raytide.raycluster.desired_replicas import scaling_of
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from raytide.raycluster.status import status
from support.builders import group, head, head_service, pod, raycluster

ALLOW_INSECURE = "raytide.io/allow-insecure"
GATES = ClusterConfig(feature_gates=DEFAULT_FEATURE_GATES | {"RayClusterMTLS", "RayClusterNetworkPolicy"})
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROTECTED = {
    "authOptions": ("spec.authOptions.mode", {"authOptions": {"mode": "token"}}),
    "tlsOptions": ("spec.tlsOptions.enabled", {"tlsOptions": {"enabled": True}}),
    "networkPolicy": ("spec.networkPolicy", {"networkPolicy": {"mode": "DenyAll"}}),
}
EVERYTHING = {key: value for _, spec in PROTECTED.values() for key, value in spec.items()}
EACH = pytest.mark.parametrize(("field", "spec"), PROTECTED.values(), ids=PROTECTED)


SUSPENDING = {"type": constants.SUSPENDING, "status": "True"}
SUSPENDED = {"type": constants.SUSPENDED, "status": "True"}


def cluster(spec, accepted="", *, groups=(), stored=None):
    obj = raycluster(*groups, **spec)
    if accepted:
        obj["metadata"]["annotations"] = {ALLOW_INSECURE: accepted}
    return RayCluster.parse({**obj, "status": stored or {}})


def run_pass(cluster, *pods):
    """The plan for a cluster with these pods, and the status that follows."""
    observed = Observed(pods=pods, services=(head_service(),))
    todo = plan(cluster, observed, GATES, lambda prefix: f"{prefix}aaaaa")
    return todo, status(cluster, observed, todo, (), NOW, scaling=scaling_of(cluster, observed))


def new_pods(todo):
    return [action for action in todo.actions if isinstance(action, Create) and action.resource == PODS]


def invalid(computed):
    return (find_condition(computed["conditions"], constants.INVALID) or {}).get("message", "")


@pytest.mark.rule("FD:RC-B3")
@EACH
def test_no_pod_is_created_without_the_requested_protection(field, spec):
    todo, computed = run_pass(cluster(spec))
    assert new_pods(todo) == []
    assert field in invalid(computed)
    (warning,) = [event for event in todo.events if field in event.message]
    assert (warning.event_type, warning.reason) == ("Warning", constants.INVALID_SPEC)
    assert f"{ALLOW_INSECURE}: {field.split('.')[1]}" in warning.message
    assert find_condition(computed["conditions"], constants.UNSUPPORTED) is None, "nothing runs without it"


@pytest.mark.rule("FD:RC-B3")
@EACH
def test_a_cluster_that_runs_keeps_its_pods_and_its_state_and_gets_no_new_ones(field, spec):
    stored = {"state": "ready", "conditions": []}
    runs = (head(), pod("demo-cpu-worker-a"), pod("demo-cpu-worker-b"))
    todo, computed = run_pass(cluster(spec, stored=stored), *runs)
    assert (todo.actions, computed["state"]) == ((), "ready")
    assert find_condition(computed["conditions"], constants.HEAD_POD_READY)["status"] == "True"
    assert computed["readyWorkerReplicas"] == 2
    grown, _ = run_pass(cluster(spec, groups=[group(replicas=5)]), *runs)
    ended, _ = run_pass(cluster(spec), head(phase="Failed", restart_policy="Never"), *runs[1:])
    shrunk, _ = run_pass(cluster(spec, groups=[group(replicas=1, numOfHosts=2)]), *runs)
    assert [action.resource for todo in (grown, ended, shrunk) for action in todo.actions] == [SERVICES]
    assert field in invalid(computed)


@pytest.mark.rule("FD:RC-B3")
@pytest.mark.parametrize("name", PROTECTED)
def test_an_annotation_accepts_pods_without_that_protection_and_no_other(name):
    field, spec = PROTECTED[name]
    todo, computed = run_pass(cluster(spec, name))
    assert len(new_pods(todo)) == 3
    assert invalid(computed) == ""
    assert field in find_condition(computed["conditions"], constants.UNSUPPORTED)["message"]
    others = ",".join(PROTECTED.keys() - {name})
    todo, computed = run_pass(cluster(EVERYTHING, others))
    assert new_pods(todo) == []
    assert invalid(computed).startswith(f"{field} ")
    assert len(new_pods(run_pass(cluster(EVERYTHING, f" {name} , {others}"))[0])) == 3


@pytest.mark.rule("FD:RC-B3")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"authOptions": {"mode": "disabled"}}, id="authentication switched off"),
        pytest.param({"authOptions": {}}, id="no mode, for which KubeRay makes a Secret and no more"),
        pytest.param({"tlsOptions": {"enabled": False}}, id="TLS switched off"),
    ],
)
def test_a_spec_without_a_protection_is_not_held_up(spec):
    todo, computed = run_pass(cluster(spec))
    assert len(new_pods(todo)) == 3
    assert invalid(computed) == ""


@pytest.mark.rule("FD:RC-B3", "RC:AU-1")
@pytest.mark.parametrize(
    ("options", "config"),
    [
        pytest.param({"mode": "token"}, replace(GATES, pods=PodConfig(creates_auth_secrets=True)), id="it may"),
        pytest.param({"mode": "token", "secretName": "mine"}, GATES, id="the user has made it"),
    ],
)
def test_pods_with_token_authentication_are_created_where_the_operator_may_create_the_secret_or_need_not(
    options, config
):
    found = cluster({"authOptions": options})
    todo = plan(found, Observed(services=(head_service(),)), config, lambda prefix: f"{prefix}aaaaa")
    assert len(new_pods(todo)) == 3
    assert (todo.unprotected, todo.events) == ((), ())


@pytest.mark.rule("FD:RC-B3")
def test_a_cluster_without_the_secret_is_told_all_three_ways_out():
    todo, _ = run_pass(cluster({"authOptions": {"mode": "token"}}))
    (event,) = todo.events
    for way in ("secretName", "tokenAuth.createSecrets", f"{ALLOW_INSECURE}: authOptions"):
        assert way in event.message


@pytest.mark.rule("RC:AU-1")
def test_options_without_a_mode_are_told_to_authenticate_nobody():
    todo, _ = run_pass(cluster({"authOptions": {"secretName": "mine"}}))
    (event,) = todo.events
    assert (event.event_type, event.reason) == ("Warning", constants.INVALID_SPEC)
    assert "has no mode: Ray runs without authentication" in event.message


@pytest.mark.rule("FD:RC-B3")
@pytest.mark.parametrize("conditions", [[], [SUSPENDING], [SUSPENDED]], ids=["asked for", "begun", "suspended"])
def test_an_unsupported_protection_is_reported_even_while_suspended(conditions):
    todo, computed = run_pass(cluster({**EVERYTHING, "suspend": True}, stored={"conditions": conditions}))
    assert new_pods(todo) == []
    assert "spec.tlsOptions" in invalid(computed)


@pytest.mark.rule("FD:RC-B3")
def test_a_field_without_effect_is_reported_in_a_warning_too():
    todo, _ = run_pass(cluster({"upgradeStrategy": {"type": "Recreate"}}))
    (warning,) = todo.events
    assert (warning.event_type, warning.reason) == ("Warning", "UnsupportedField")
    assert warning.message.startswith("spec.upgradeStrategy.type: ")
