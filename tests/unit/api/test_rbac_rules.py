"""The table of permissions is minimal, without duplicates, and complete."""

from collections import Counter

import pytest

from raytide.api.config import AutoscalerConfig
from raytide.api.meta import RAYCLUSTERS, ROLES, TRAININGJOBS
from raytide.api.rbac_rules import PERMISSIONS, Feature, Scope, Triple, permissions_for, permissions_in
from raytide.raycluster.manifests.rbac import build_rights
from support import builders
from support.permissions import triples_of

KNOWN_VERBS = {"get", "list", "watch", "create", "update", "patch", "delete"}
NEVER = {"pods/exec", "pods/proxy", "services/proxy", "clusterroles", "clusterrolebindings"}


@pytest.mark.rule("SE:C6")
def test_it_is_within_the_budget():
    assert len(triples_of(permissions_for("raytide"))) <= 60


@pytest.mark.rule("SE:C6")
def test_there_is_no_wildcard_and_no_invented_verb():
    assert {triple.verb for triple in triples_of(PERMISSIONS)} <= KNOWN_VERBS
    assert not [triple for triple in triples_of(PERMISSIONS) if "*" in "".join(triple)]


@pytest.mark.rule("SE:C6")
def test_it_has_nothing_to_do_with_cluster_roles_or_exec():
    assert NEVER.isdisjoint(triple.resource for triple in triples_of(PERMISSIONS))


@pytest.mark.rule("SE:C6", "RC:AU-1")
def test_it_has_nothing_to_do_with_secrets_unless_it_creates_those_of_token_authentication():
    assert "secrets" not in {triple.resource for triple in triples_of(permissions_for("raytide"))}
    every = triples_of(permissions_for("raytide", features=frozenset(Feature)))
    assert {t.verb for t in every if t.resource == "secrets"} == {"get", "create"}


@pytest.mark.rule("SE:C6")
def test_the_operator_may_only_read_and_create_roles_and_bindings():
    of_rbac = {(t.resource, t.verb) for t in triples_of(PERMISSIONS) if t.group == "rbac.authorization.k8s.io"}
    assert of_rbac == {(kind, verb) for kind in ("roles", "rolebindings") for verb in ("get", "create")}


@pytest.mark.rule("RC:RB-4")
@pytest.mark.parametrize("mode", ["raytide", "ray"])
def test_it_holds_what_it_passes_on(mode):
    config = AutoscalerConfig(mode=mode)
    role = dict(build_rights(builders.parsed(enableInTreeAutoscaling=True), config))[ROLES]
    passed_on = {
        Triple(group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert passed_on <= triples_of(permissions_for(mode))
    held = triples_of(permissions_for(mode, kinds=(RAYCLUSTERS,)))
    assert {t for t in held if t.verb == "patch" and t.resource in ("rayclusters", "pods", "pods/resize")} <= passed_on


@pytest.mark.parametrize(
    ("mode", "kinds", "held"),
    [
        pytest.param("raytide", (RAYCLUSTERS,), set(), id="for RayClusters nothing"),
        pytest.param("ray", (RAYCLUSTERS,), {"patch pods", "patch pods/resize"}, id="for Ray's autoscaler"),
        pytest.param("raytide", (TRAININGJOBS,), {"patch pods"}, id="for the annotation of a TrainingJob's membership"),
    ],
)
def test_writing_to_pods_is_held_where_it_is_needed(mode, kinds, held):
    rights = shown(permissions_for(mode, kinds=kinds))
    assert {right for right in rights if right.startswith(("patch pods", "update pods"))} == held


def shown(permissions):
    return {str(triple) for triple in triples_of(permissions)}


@pytest.mark.rule("FD:SEC-F10")
def test_a_controller_that_is_off_needs_nothing_of_its_kind():
    of_clusters, of_jobs = (shown(permissions_for("raytide", kinds=(kind,))) for kind in (RAYCLUSTERS, TRAININGJOBS))
    of_both = {"get pods", "list pods", "watch pods", "create pods", "delete pods", "list nodes", "watch nodes"}
    of_both |= {f"{verb} services" for verb in ("get", "list", "watch", "create")}
    of_both |= {"create events", "patch events"} | {
        f"{verb} leases.coordination.k8s.io" for verb in ("get", "create", "update")
    }
    assert of_clusters & of_jobs == of_both
    assert {right for right in of_clusters if "trainingjobs" in right or "configmaps" in right} == set()
    assert {
        right for right in of_jobs if "rayclusters" in right or "roles" in right or "serviceaccounts" in right
    } == set()


@pytest.mark.rule("FD:SEC-F10")
@pytest.mark.parametrize("mode", ["raytide", "ray"])
def test_without_the_rbac_objects_of_autoscalers_none_of_their_rights_is_held(mode):
    of_clusters = shown(permissions_for(mode, kinds=(RAYCLUSTERS,)))
    dropped = of_clusters - shown(permissions_for(mode, kinds=(RAYCLUSTERS,), features={Feature.REDIS_CLEANUP}))
    written = {"serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"}
    passed_on = {"patch pods", "patch pods/resize"} if mode == "ray" else {"list events"}
    assert dropped == passed_on | {f"{verb} {resource}" for verb in ("get", "create") for resource in written}


def test_no_permission_is_in_two_rows_that_apply_to_the_same():
    rows = [permission for permission in PERMISSIONS if permission.scope is not Scope.EVERYWHERE]
    counted = Counter((each.kind, triple) for each in rows for triple in each.triples)
    assert [triple for triple, rows in counted.items() if rows > 1] == []


def test_what_is_needed_everywhere_is_given_where_everything_is_watched():
    assert triples_of(permissions_in(Scope.EVERYWHERE)) <= triples_of(permissions_in(Scope.WATCHED))
    assert {triple.verb for triple in triples_of(permissions_in(Scope.EVERYWHERE))} == {"list", "watch"}


def test_config_maps_of_jobs_are_written_and_never_removed():
    assert {t.verb for t in triples_of(PERMISSIONS) if t.resource == "configmaps"} == {
        "create",
        "get",
        "list",
        "patch",
        "watch",
    }


def test_a_training_job_is_never_created_and_never_replaced():
    on_jobs = {(t.resource, t.verb) for t in triples_of(PERMISSIONS) if t.group == "paddlepaddle.org"}
    assert on_jobs == {
        *(("trainingjobs", verb) for verb in ("get", "list", "watch", "patch", "delete")),
        ("trainingjobs/status", "patch"),
        ("trainingjobs/finalizers", "update"),
    }


@pytest.mark.rule("FD:RC-B1")
def test_the_right_to_write_a_raycluster_is_there_for_a_finalizer_and_to_be_passed_on():
    written = [p for p in PERMISSIONS if p.resource == "rayclusters" and not set(p.verbs) <= {"get", "list", "watch"}]
    purpose = (
        "set and remove the finalizer of RayClusters with GCS fault tolerance in Redis, and to grant it to autoscalers"
    )
    assert [(p.verbs, p.purpose.partition(":")[0]) for p in written] == [(("patch",), purpose)]


def test_a_scope_fits_whether_the_resource_has_a_namespace():
    odd = [p.resource for p in PERMISSIONS if p.on.is_namespaced == (p.scope is Scope.CLUSTER)]
    assert odd == []


def test_every_permission_has_a_purpose_and_one_scope():
    assert all(permission.purpose and permission.verbs for permission in PERMISSIONS)
    assert [p for scope in Scope for p in permissions_in(scope)] == sorted(
        PERMISSIONS, key=lambda p: list(Scope).index(p.scope)
    )


def test_what_cannot_be_given_by_a_role_in_a_namespace_is_optional():
    rows = permissions_in(Scope.CLUSTER) + permissions_in(Scope.EVERYWHERE)
    assert [p.resource for p in rows if p.is_required] == []


def test_a_triple_reads_like_kubectl():
    status = next(p for p in PERMISSIONS if p.subresource == "status")
    assert [str(t) for t in status.triples] == ["patch rayclusters/status.ray.io"]
    assert str(Triple("", "pods", "get")) == "get pods"
