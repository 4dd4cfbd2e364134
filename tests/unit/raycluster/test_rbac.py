"""The permissions of an autoscaler, and when its RBAC objects are created (RC §2.4)."""

import pytest

from raytide.api import constants
from raytide.api.config import AutoscalerConfig, ClusterConfig, PodConfig
from raytide.api.meta import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from raytide.raycluster.manifests.lookup import Lookup
from raytide.raycluster.manifests.rbac import build_rights, grants_no_more, service_account_name
from raytide.raycluster.observed import Observed, PendingRetry, observe
from raytide.raycluster.owned_objects import RIGHTS_SLOT
from raytide.raycluster.plan import plan, wanted_lookups
from support.builders import group, head, head_service, parsed, template

OURS, RAYS = AutoscalerConfig("raytide"), AutoscalerConfig("ray")
LONG = "a" + "b" * 52
ALL_ABSENT = frozenset({(SERVICE_ACCOUNTS, "demo"), (ROLES, "demo"), (ROLE_BINDINGS, "demo")})
EVENTS_READ = {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]}
PODS_READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}


def autoscaled(name="demo", account="", **spec):
    extra = {"serviceAccountName": account} if account else {}
    head_group = {"rayStartParams": {}, "template": template("ray-head", **extra)}
    return parsed(**{"name": name, "enableInTreeAutoscaling": True, "headGroupSpec": head_group, **spec})


def rights(cluster, config=OURS):
    return dict(build_rights(cluster, config))


def decide(cluster, *pods, config=ClusterConfig(), **observed):  # noqa: B008 - frozen
    return plan(cluster, Observed(pods=pods, services=(head_service(),), **observed), config, lambda p: f"{p}00000")


def events_of(todo):
    return [f"{action.resource.kind} {action.name}" for action in todo.actions]


# --- what it is allowed ------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:RB-4", "SC:S10", "RM:I12")
def test_it_may_read_pods_and_follow_and_write_its_own_raycluster():
    verbs = ["get", "list", "watch", "patch"]
    own = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": verbs, "resourceNames": [LONG]}
    assert rights(autoscaled(LONG))[ROLES]["rules"] == [PODS_READ, EVENTS_READ, own]


@pytest.mark.rule("RC:RB-4")
def test_rays_own_may_also_resize_pods_as_under_kuberay():
    own = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"], "resourceNames": ["demo"]}
    assert rights(autoscaled(), RAYS)[ROLES]["rules"] == [
        {**PODS_READ, "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
        own,
    ]


@pytest.mark.rule("RC:RB-3", "RM:I8")
@pytest.mark.parametrize("resource", [SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS], ids=lambda r: r.kind)
def test_each_rbac_object_has_labels_and_owner_of_the_cluster(resource):
    manifest = rights(autoscaled())[resource]
    assert (manifest["apiVersion"], manifest["kind"]) == (resource.api_version, resource.kind)
    assert manifest["metadata"]["labels"] == {
        "ray.io/cluster": "demo",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("RayCluster", "demo", True)


@pytest.mark.rule("RC:RB-5")
@pytest.mark.parametrize(
    ("name", "account", "role", "subject"),
    [
        pytest.param("demo", "", "demo", "demo", id="an account of its own"),
        pytest.param(LONG, "", "b" * 50, "b" * 50, id="a name of 53 characters, cut as KubeRay cuts it"),
        pytest.param("demo", "mine", "demo", "mine", id="the user's account"),
    ],
)
def test_the_binding_gives_the_role_to_the_account_of_the_head(name, account, role, subject):
    cluster = autoscaled(name, account)
    binding = rights(cluster)[ROLE_BINDINGS]
    assert binding["metadata"]["name"] == rights(cluster)[ROLES]["metadata"]["name"] == role
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": subject, "namespace": "default"}]
    assert service_account_name(cluster) == subject


# --- what is looked for ------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:RB-1", "D3")
def test_three_rbac_objects_are_read():
    expected = {Lookup(SERVICE_ACCOUNTS, "demo"), Lookup(ROLES, "demo"), Lookup(ROLE_BINDINGS, "demo")}
    assert set(wanted_lookups(autoscaled(), ClusterConfig())) == expected


@pytest.mark.rule("RC:RB-2")
def test_the_users_account_only_has_to_exist():
    assert Lookup(SERVICE_ACCOUNTS, "mine", has_to_be_ours=False) in wanted_lookups(
        autoscaled(account="mine"), ClusterConfig()
    )
    assert SERVICE_ACCOUNTS not in {
        each.resource for each in wanted_lookups(autoscaled(account="mine"), ClusterConfig()) if each.name != "mine"
    }


def test_no_rbac_object_is_read_if_none_is_written():
    dying = autoscaled()
    dying = dying.model_copy(
        update={"metadata": dying.metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})}
    )
    for cluster in (parsed(), dying, autoscaled(managedBy="kueue.x-k8s.io/multikueue")):
        assert wanted_lookups(cluster, ClusterConfig()) == ()


@pytest.mark.rule("FD:SEC-F10")
def test_where_users_create_the_rbac_objects_the_operator_reads_none_and_the_head_names_the_same_account():
    config = ClusterConfig(pods=PodConfig(autoscaler=AutoscalerConfig(creates_rbac=False)))
    for cluster in (autoscaled(), autoscaled(account="mine")):
        assert wanted_lookups(cluster, config) == ()
    assert service_account_name(autoscaled()) == "demo"


# --- when it is created ------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:RB-1", "RC:REC-6", "RC:REC-7", "RC:REC-8")
def test_a_first_head_waits_for_its_rights():
    todo = decide(autoscaled(), missing=ALL_ABSENT)
    assert events_of(todo) == ["ServiceAccount demo", "Role demo"]
    assert todo.is_continued
    then = decide(autoscaled(), missing=frozenset({(ROLE_BINDINGS, "demo")}))
    assert events_of(then) == ["RoleBinding demo"]
    assert then.is_continued
    assert [(action.success_reason, action.failure_reason) for action in (*todo.actions, *then.actions)] == [
        ("CreatedServiceAccount", "FailedToCreateServiceAccount"),
        ("CreatedRole", "FailedToCreateRole"),
        ("CreatedRoleBinding", "FailedToCreateRoleBinding"),
    ]


@pytest.mark.rule("RC:RB-1")
def test_then_it_comes():
    kinds = [action.resource.kind for action in decide(autoscaled()).actions]
    assert kinds == ["Pod", "Pod", "Pod"]


@pytest.mark.rule("RC:RB-1")
def test_only_missing_rbac_objects_are_created_and_workers_do_not_wait_if_the_head_runs():
    todo = decide(autoscaled(workerGroupSpecs=[group(replicas=1)]), head(), missing=frozenset({(ROLES, "demo")}))
    assert events_of(todo) == ["Role demo", "Pod demo-cpu-worker-00000"]


def test_the_mode_of_the_install_decides_on_the_role():
    config = ClusterConfig(pods=PodConfig(autoscaler=RAYS))
    (role,) = decide(autoscaled(), head(), config=config, missing=frozenset({(ROLES, "demo")})).actions[:1]
    assert "patch" in role.manifest["rules"][0]["verbs"]


@pytest.mark.rule("RC:RB-2")
def test_without_the_users_service_account_no_head_is_created_and_an_event_is_recorded():
    todo = decide(autoscaled(account="mine"), missing=frozenset({(SERVICE_ACCOUNTS, "mine"), *ALL_ABSENT}))
    assert todo.actions == ()
    (event,) = todo.events
    assert event.reason == constants.AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND == "AutoscalerServiceAccountNotFound"
    assert "service account mine of the head's template does not exist" in event.message
    assert todo.requeue_after_s == 5.0


@pytest.mark.rule("RC:RB-2")
def test_an_account_that_is_the_users_is_never_created():
    missing = ALL_ABSENT - {(SERVICE_ACCOUNTS, "demo")}
    assert events_of(decide(autoscaled(account="mine"), missing=missing)) == ["Role demo"]


@pytest.mark.rule("SC:S3")
def test_a_rejection_is_waited_for_and_holds_up_no_workers_of_a_head_that_runs():
    rejected = (PendingRetry(RIGHTS_SLOT, constants.FAILED_TO_CREATE_ROLE, "no", 7.0),)
    cluster = autoscaled(workerGroupSpecs=[group(replicas=1)])
    assert events_of(decide(cluster, missing=ALL_ABSENT, pending_retries=rejected)) == []
    todo = decide(cluster, head(), missing=ALL_ABSENT, pending_retries=rejected)
    assert events_of(todo) == ["Pod demo-cpu-worker-00000"]
    assert todo.requeue_after_s == 7.0


# --- what was there before -----------------------------------------------------------------------------------------------


def role_with(*rules):
    return {**rights(autoscaled())[ROLES], "rules": list(rules)}


VERBS = ["get", "list", "watch", "patch"]
OWN = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": VERBS, "resourceNames": ["demo"]}


@pytest.mark.rule("FD:RC-B9")
@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([], True, id="nothing"),
        pytest.param([PODS_READ, OWN], True, id="the same"),
        pytest.param([{**PODS_READ, "resourceNames": ["a"]}], True, id="less: one pod by name"),
        pytest.param([{**OWN, "verbs": ["get"]}], True, id="less: reading"),
        pytest.param([{**OWN, "verbs": ["get", "patch"]}], True, id="less: without a watch, as before"),
        pytest.param([{**OWN, "resourceNames": []}], False, id="every RayCluster, as KubeRay's"),
        pytest.param([{**OWN, "resourceNames": ["other"]}], False, id="another RayCluster"),
        pytest.param([{**PODS_READ, "verbs": ["delete"]}], False, id="another verb"),
        pytest.param([{**PODS_READ, "resources": ["secrets"]}], False, id="another resource"),
        pytest.param([{**PODS_READ, "verbs": ["*"]}], False, id="everything"),
        pytest.param([PODS_READ, {**PODS_READ, "apiGroups": ["*"]}], False, id="one rule too many"),
    ],
)
def test_an_existing_role_is_used_if_it_grants_no_more_than_the_generated_one(rules, expected):
    assert grants_no_more(role_with(*rules), role_with(PODS_READ, OWN)) == expected


@pytest.mark.rule("FD:RC-B9")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, True, id="the same"),
        pytest.param({"subjects": []}, False, id="no subject"),
        pytest.param(
            {"subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}]},
            False,
            id="another subject",
        ),
        pytest.param(
            {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "demo"}},
            False,
            id="another role",
        ),
    ],
)
def test_an_existing_binding_is_used_if_it_binds_the_same_account_to_the_same_role(change, expected):
    ours = rights(autoscaled())[ROLE_BINDINGS]
    assert grants_no_more({**ours, **change}, ours) == expected


@pytest.mark.rule("FD:RC-B9")
@pytest.mark.parametrize(
    ("service", "expected"),
    [
        pytest.param(head_service(owner_uid=""), True, id="without an owner, of the right name"),
        pytest.param(head_service(owner_uid="", name="other"), False, id="without an owner, of another name"),
        pytest.param(head_service(owner_uid="", node_type=""), False, id="without an owner, with other labels"),
        pytest.param(head_service(owner_uid="uid-of-another"), False, id="another's"),
    ],
)
def test_a_head_service_that_was_there_is_used_if_it_has_no_owner_and_workers_find_it(service, expected):
    observed = observe("uid-demo", pods=(), services=(service,), head_service_name="demo-head-svc")
    assert (observed.head_service is not None) == expected


def headless_service(**fields):
    headless = {"name": "demo-headless", "node_type": "", "identifier": "", "is_headless_worker_service": True}
    return head_service(**{**headless, **fields})


@pytest.mark.rule("FD:RC-B9", "RC:HL-1")
@pytest.mark.parametrize(
    ("service", "expected"),
    [
        pytest.param(headless_service(owner_uid=""), True, id="without an owner, of the right name"),
        pytest.param(headless_service(owner_uid="", name="other"), False, id="without an owner, of another name"),
        pytest.param(
            headless_service(owner_uid="", is_headless_worker_service=False), False, id="without an owner or its label"
        ),
        pytest.param(headless_service(owner_uid="uid-of-another"), False, id="of another owner"),
    ],
)
def test_an_existing_headless_service_is_used_if_it_has_no_owner_and_the_right_name(service, expected):
    observed = observe("uid-demo", pods=(), services=(service,), head_service_name="demo-head-svc")
    assert observed.has_headless_worker_service == expected
