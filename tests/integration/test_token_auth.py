"""Token authentication: the Secret of a RayCluster, and where the operator may not create it.

One operator with `--auth-secrets` and one API serve all tests of this file; every test has a namespace of its own. With real Ray,
clients without the token are rejected in test_ray_token_auth.py.
"""

import base64
import secrets

import pytest
import pytest_asyncio

from integration.clusters import APIS, COLLECTED_S, cluster_with_operator
from integration.embedded_cluster import has_reconciled, holds_while, until
from raytide.api import constants
from support.builders import group, raycluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRETS = "secrets"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=APIS)
async def cluster(request, tmp_path_factory):
    async with cluster_with_operator(request, tmp_path_factory.mktemp("operator"), "--auth-secrets") as cluster:
        yield cluster


@pytest.fixture
def namespace():
    return f"auth-{secrets.token_hex(4)}"


def with_token(namespace, **options):
    return raycluster(group(replicas=1), namespace=namespace, authOptions={"mode": "token", **options})


def make_secret(cluster, namespace, name="demo", **metadata):
    cluster.ensure_namespace(namespace)
    data = {"auth_token": base64.b64encode(b"mine").decode()}
    return cluster.create(SECRETS, {"metadata": {"name": name, "namespace": namespace, **metadata}, "data": data})


def secret_of(cluster, namespace, name="demo"):
    return next((each for each in cluster.all(SECRETS, namespace) if each["metadata"]["name"] == name), None)


def heads(cluster, namespace):
    return cluster.pods(namespace, constants.HEAD_GROUP)


@pytest.mark.rule("RC:AU-1", "RC:AU-2", "RC:REC-10")
async def test_the_secret_is_made_once_before_the_head_and_goes_with_the_cluster(cluster, namespace):
    uid = cluster.apply(with_token(namespace))["metadata"]["uid"]
    (head,) = await until("the head exists", lambda: heads(cluster, namespace))
    made = secret_of(cluster, namespace)
    assert len(base64.b64decode(base64.b64decode(made["data"]["auth_token"]))) == 32
    assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == [uid]
    env = {entry["name"]: entry for entry in head["spec"]["containers"][0]["env"]}
    assert env["RAY_AUTH_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "demo", "key": "auth_token"}}
    await has_reconciled(cluster, namespace)
    assert secret_of(cluster, namespace)["data"] == made["data"]
    assert not {reason for reason in cluster.events(namespace) if "Secret" in reason}
    cluster.delete(namespace, "demo")
    await until("the Secret is gone", lambda: secret_of(cluster, namespace) is None, within_s=COLLECTED_S)


@pytest.mark.rule("RC:AU-1")
async def test_a_secret_of_somebody_else_is_told_and_never_used(cluster, namespace):
    before = make_secret(cluster, namespace)
    cluster.apply(with_token(namespace))
    await until("it is told", lambda: cluster.notes(namespace, "FailedToCreateAuthSecret"))
    await holds_while("there is no head", lambda: not heads(cluster, namespace), has_reconciled(cluster, namespace))
    after = secret_of(cluster, namespace)
    assert (after["metadata"]["uid"], after["data"]) == (before["metadata"]["uid"], before["data"])
    assert "demo" in cluster.condition(namespace, "demo", "ReplicaFailure")["message"]
    cluster.delete(namespace, "demo", SECRETS)
    await until("the head exists", lambda: heads(cluster, namespace))
    assert secret_of(cluster, namespace)["data"] != before["data"]


@pytest.mark.rule("RC:AU-1")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"mode": "token", "secretName": "demo"}, id="by naming that Secret"),
        pytest.param({"mode": "disabled"}, id="by doing without"),
        pytest.param({"mode": "token", "enableK8sTokenAuth": True}, id="by tokens of Kubernetes"),
    ],
)
async def test_the_way_out_of_a_name_that_is_taken_is_an_edit(cluster, namespace, options):
    before = make_secret(cluster, namespace)
    cluster.apply({**with_token(namespace), "spec": {**with_token(namespace)["spec"], "rayVersion": "2.60.0"}})
    await until("it is told", lambda: cluster.notes(namespace, "FailedToCreateAuthSecret"))
    cluster.edit(namespace, "demo", lambda obj: obj["spec"].update(authOptions=options))
    await until("the head exists", lambda: heads(cluster, namespace))
    await until("nothing fails any more", lambda: not cluster.condition(namespace, "demo", "ReplicaFailure"))
    assert secret_of(cluster, namespace)["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.rule("RC:AU-1")
async def test_a_secret_that_was_deleted_is_made_again_with_the_next_head(cluster, namespace):
    cluster.apply(with_token(namespace))
    (head,) = await until("the head exists", lambda: heads(cluster, namespace))
    cluster.make_ready(namespace)
    before = secret_of(cluster, namespace)
    cluster.delete(namespace, "demo", SECRETS)
    cluster.end(namespace, head["metadata"]["name"])
    await until("another head exists", lambda: heads(cluster, namespace) not in ([], [head]))
    after = await until("another Secret exists", lambda: secret_of(cluster, namespace))
    assert after["data"] != before["data"]


@pytest.mark.rule("RC:AU-1")
async def test_a_secret_that_a_backup_restored_without_its_owner_is_used(cluster, namespace):
    make_secret(cluster, namespace, labels={"ray.io/cluster": "demo"})
    cluster.apply(with_token(namespace))
    await until("the head exists", lambda: heads(cluster, namespace))
    assert secret_of(cluster, namespace)["data"]["auth_token"] == base64.b64encode(b"mine").decode()


@pytest.mark.rule("RC:AU-1", "RC:AU-3")
async def test_for_the_users_secret_none_is_created(cluster, namespace):
    cluster.apply(with_token(namespace, secretName="mine"))
    (head,) = await until("the head exists", lambda: heads(cluster, namespace))
    env = {entry["name"]: entry for entry in head["spec"]["containers"][0]["env"]}
    assert env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "mine"
    assert secret_of(cluster, namespace) is None
