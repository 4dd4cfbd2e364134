"""One test per bullet of `AccessReviewer`' contract."""

import asyncio
import logging

import pytest

from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import NODES, PODS, RAYCLUSTERS, TRAININGJOBS
from raytide.api.rbac_rules import PERMISSIONS, Permission, Scope
from raytide.kube.access_review import AccessReviewer, access_reviews
from raytide.kube.client import Client
from raytide.runtime.clock import Clock
from unit.kube.scripted import ScriptedTransport, answer, status_error

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D9")]

ROWS = (
    Permission(PODS, ("create", "delete"), "create and delete pods"),
    Permission(RAYCLUSTERS, ("patch",), "report status", subresource="status"),
    Permission(NODES, ("list",), "see nodes", scope=Scope.CLUSTER, is_required=False),
)


class Env:
    def __init__(self, asked=None, is_served=lambda _kind: True) -> None:
        self.wire = ScriptedTransport(responder=self.review, takes_s=0.01)
        self.denied: set[tuple[str, str]] = set()
        asked = asked or access_reviews(ROWS, watched=(), own=None)
        self.rights = AccessReviewer(Client(self.wire, clock=Clock()), asked, is_served=is_served)

    def review(self, call):
        asked = call.json["spec"]["resourceAttributes"]
        return answer({"status": {"allowed": (asked["verb"], asked["resource"]) not in self.denied}}, status=201)


async def test_every_verb_is_reviewed_with_at_most_eight_requests_at_once():
    env = Env(access_reviews(PERMISSIONS, watched=("a", "b"), own="system"))
    await env.rights.ask()
    assert env.wire.most_in_flight == 8
    asked = [call.json["spec"]["resourceAttributes"] for call in env.wire.calls]
    assert {"verb": "create", "resource": "pods", "namespace": "a"} in asked
    assert {"verb": "create", "resource": "pods", "namespace": "b"} in asked
    assert {
        "verb": "update",
        "group": "coordination.k8s.io",
        "resource": "leases",
        "namespace": "system",
    } in asked
    assert {"verb": "list", "resource": "nodes"} in asked
    assert {call.path for call in env.wire.calls} == {"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}


def test_cluster_wide_permissions_are_reviewed_only_with_watched_namespaces():
    rows = (*ROWS, Permission(PODS, ("list",), "see what is on nodes", scope=Scope.EVERYWHERE, is_required=False))
    watching_some = [
        q for q in access_reviews(rows, watched=("a",), own=None) if q.permission.scope is Scope.EVERYWHERE
    ]
    assert [(q.verb, q.namespace) for q in watching_some] == [("list", "")]
    assert access_reviews(rows, watched=(), own=None) == access_reviews(ROWS, watched=(), own=None)


def test_without_leader_election_no_access_review_is_about_leases():
    asked = access_reviews(PERMISSIONS, watched=(), own=None)
    assert {question.namespace for question in asked} == {""}
    assert all(question.permission.scope is not Scope.OWN for question in asked)


async def test_what_is_missing_is_named_once_with_what_it_is_for(caplog):
    caplog.set_level(logging.INFO)
    env = Env()
    env.denied = {("create", "pods"), ("patch", "rayclusters"), ("list", "nodes")}
    for _ in range(2):
        await env.rights.ask()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "missing permission: create pods, needed to create and delete pods"),
        ("WARNING", "missing permission: patch rayclusters/status.ray.io, needed to report status"),
        ("INFO", "missing optional permission: list nodes, needed to see nodes"),
    ]
    assert env.rights.check() == (False, "missing permissions: create pods, patch rayclusters/status.ray.io")


async def test_a_missing_optional_permission_keeps_the_operator_ready():
    env = Env()
    env.denied = {("list", "nodes")}
    await env.rights.ask()
    assert env.rights.check() == (True, "all required permissions are granted")


async def test_a_namespace_that_lacks_a_right_is_named():
    env = Env(access_reviews(ROWS, watched=("a",), own=None))
    env.denied = {("create", "pods")}
    await env.rights.ask()
    assert env.rights.check() == (False, "missing permissions: create pods in namespace a")


async def test_reviews_are_repeated_every_thirty_seconds_until_all_permissions_are_granted(caplog):
    caplog.set_level(logging.INFO)
    env = Env()
    env.denied = {("create", "pods")}
    await env.rights.ask()
    asking = asyncio.create_task(env.rights.run())
    await asyncio.sleep(65)
    assert len(env.wire.calls) == 3 * 4
    env.denied = set()
    await asyncio.sleep(300)
    assert len(env.wire.calls) == 4 * 4
    assert env.rights.check() == (True, "all required permissions are granted")
    assert "all required permissions are granted" in caplog.text
    assert not asking.done()
    asking.cancel()


async def test_what_only_a_kind_needs_is_missed_while_it_is_served_and_named_when_it_appears(caplog):
    caplog.set_level(logging.INFO)
    served = set()
    rows = (*ROWS, Permission(TRAININGJOBS, ("patch",), "report", subresource="status", kind=TRAININGJOBS))
    env = Env(access_reviews(rows, watched=(), own=None), is_served=lambda kind: kind in served)
    env.denied = {("patch", "trainingjobs")}
    await env.rights.ask()
    assert env.rights.check() == (True, "all required permissions are granted")
    assert "trainingjobs" not in caplog.text
    asking = asyncio.create_task(env.rights.run())
    served.add(TRAININGJOBS)
    assert env.rights.check() == (False, "missing permissions: patch trainingjobs/status.paddlepaddle.org")
    await asyncio.sleep(31)
    assert "missing permission: patch trainingjobs/status.paddlepaddle.org, needed to report" in caplog.text
    asking.cancel()


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiUnavailableError("away"), id="the API server does not respond"),
        pytest.param(status_error(403, "Forbidden", "no reviews"), id="access reviews are forbidden"),
    ],
)
async def test_permissions_that_cannot_be_reviewed_are_assumed_and_reviewed_again(error):
    env = Env()
    env.wire.responder = lambda _: error
    await env.rights.ask()
    is_well, text = env.rights.check()
    assert is_well
    assert "cannot review permissions" in text
    env.wire.responder = env.review
    asking = asyncio.create_task(env.rights.run())
    await asyncio.sleep(31)
    assert env.rights.check() == (True, "all required permissions are granted")
    asking.cancel()
