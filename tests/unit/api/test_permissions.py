"""The table of rights stays small, plain and true."""

from collections import Counter

import pytest

from raytide.api.permissions import PERMISSIONS, Scope, Triple, permissions_in, triples_of

KNOWN_VERBS = {"get", "list", "watch", "create", "update", "patch", "delete"}
NEVER = {"secrets", "configmaps", "pods/exec", "pods/proxy", "services/proxy", "roles", "rolebindings", "clusterroles"}


@pytest.mark.rule("SE:C6")
def test_it_is_within_the_budget():
    assert len(triples_of(PERMISSIONS)) <= 60


@pytest.mark.rule("SE:C6")
def test_there_is_no_wildcard_and_no_invented_verb():
    assert {triple.verb for triple in triples_of(PERMISSIONS)} <= KNOWN_VERBS
    assert not [triple for triple in triples_of(PERMISSIONS) if "*" in "".join(triple)]


@pytest.mark.rule("SE:C6")
def test_it_has_nothing_to_do_with_secrets_roles_or_exec():
    assert NEVER.isdisjoint(triple.resource for triple in triples_of(PERMISSIONS))


def test_no_right_stands_in_two_rows():
    counted = Counter(triple for permission in PERMISSIONS for triple in permission.triples)
    assert [triple for triple, rows in counted.items() if rows > 1] == []


def test_the_spec_of_a_raycluster_is_never_written():
    written = [
        t for t in triples_of(PERMISSIONS) if t.resource == "rayclusters" and t.verb not in {"get", "list", "watch"}
    ]
    assert written == []


def test_a_scope_fits_whether_the_resource_has_a_namespace():
    odd = [p.resource for p in PERMISSIONS if p.on.is_namespaced == (p.scope is Scope.CLUSTER)]
    assert odd == []


def test_every_row_says_what_it_is_for_and_stands_in_one_scope():
    assert all(permission.purpose and permission.verbs for permission in PERMISSIONS)
    assert [p for scope in Scope for p in permissions_in(scope)] == sorted(
        PERMISSIONS, key=lambda p: list(Scope).index(p.scope)
    )


def test_what_cannot_be_given_by_a_role_in_a_namespace_is_optional():
    assert [p.resource for p in permissions_in(Scope.CLUSTER) if p.is_required] == []


def test_a_triple_reads_like_kubectl():
    status = next(p for p in PERMISSIONS if p.subresource == "status")
    assert [str(t) for t in status.triples] == ["patch rayclusters/status.ray.io"]
    assert str(Triple("", "pods", "get")) == "get pods"
