"""`raytide ui` with the rights of its caller: a token of one namespace, of an administrator, and one that is not valid.

The command runs as a process beside a real API server, which checks the rights; nothing else runs.
"""

import asyncio
import re
import secrets
import sys
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from aiohttp import ClientSession

from integration.cluster_under_test import JOB_CRD
from integration.embedded_cluster import PATIENCE_S
from raytide.api.sharing_record import RECLAIMED, ResizeNote, SharingRecord, encode_record
from raytide.api.trainingjob_constants import SHARING_ANNOTATION
from raytide_sandbox.kubeconfig import build_kubeconfig, write_private
from support.kube_plane import eventually
from support.plane_admin import PlaneAdmin
from support.training_builders import trainingjob

pytestmark = [
    pytest.mark.kube,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.rule("SC:S21"),
    pytest.mark.rule("FD:SEC-F7"),
]

KINDS = {"ray.io": "rayclusters", "paddlepaddle.org": "trainingjobs"}
RECEIVER, GIVER = "receiver-of-another-team", "giver"


class Scene:
    """Two namespaces, of which a token may list one: its job gave capacity to a job of the other."""

    def __init__(self, plane, folder, mine, other, token) -> None:
        self.plane, self.folder, self.mine, self.other, self.token = plane, folder, mine, other, token

    @asynccontextmanager
    async def page(self, token, *words):
        """A session with `raytide ui`, which has that token of the API server."""
        kubeconfig = self.folder / f"kubeconfig-{secrets.token_hex(3)}"
        write_private(
            kubeconfig, build_kubeconfig(server=self.plane.server, authority=self.plane.authority, token=token)
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "raytide", "ui", "--port", "0", "--kubeconfig", str(kubeconfig), *words),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)).decode()
            site, secret = re.search(r"(http://127\.0\.0\.1:\d+)/#token=(\S+)\n", line).groups()
            async with ClientSession(site, headers={"Authorization": f"Bearer {secret}"}) as session:
                yield session
        finally:
            process.terminate()
            await asyncio.wait_for(process.communicate(), PATIENCE_S)

    async def lanes(self, session, is_shown):
        """Text and JSON of the lanes, once they show that."""
        end = time.monotonic() + PATIENCE_S
        while True:
            async with session.get("/api/lanes") as answer:
                text, found = await answer.text(), await answer.json()
            if is_shown(found):
                return text, found
            assert time.monotonic() < end, text
            await asyncio.sleep(0.05)


def job(name: str, namespace: str) -> dict:
    made = trainingjob(name=name, namespace=namespace, trainer={"entrypoint": "true"})
    made["metadata"] = {"name": name}
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(kube_plane, tmp_path_factory):
    async with PlaneAdmin(kube_plane.server, kube_plane.authority, kube_plane.admin_token) as admin:
        await admin.install_crd()
        await admin.install_crd(JOB_CRD)
    mine, other = kube_plane.new_namespace("mine"), kube_plane.new_namespace("other-team")
    jobs = "/apis/paddlepaddle.org/v1/namespaces/{}/trainingjobs"
    receiver = kube_plane.create(jobs.format(other), job(RECEIVER, other))["metadata"]["uid"]
    uid = kube_plane.create(jobs.format(mine), job(GIVER, mine))["metadata"]["uid"]
    note = ResizeNote(datetime.now(UTC), 4, 2, RECLAIMED, "for a job of another namespace", "", (receiver,))
    record = {"annotations": {SHARING_ANNOTATION: encode_record(SharingRecord(uid, 2, resizes=(note,)))}}
    status, _ = kube_plane.request_json("PATCH", f"{jobs.format(mine)}/{GIVER}", {"metadata": record})
    assert status == 200
    core, rbac = f"/api/v1/namespaces/{mine}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{mine}"
    kube_plane.create(f"{core}/serviceaccounts", {"metadata": {"name": "dev"}})
    rules = [{"apiGroups": list(KINDS), "resources": list(KINDS.values()), "verbs": ["get", "list", "watch"]}]
    kube_plane.create(f"{rbac}/roles", {"metadata": {"name": "dev"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "dev", "namespace": mine}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dev"}
    kube_plane.create(f"{rbac}/rolebindings", {"metadata": {"name": "dev"}, "subjects": [subject], "roleRef": role})
    token = kube_plane.create(f"{core}/serviceaccounts/dev/token", {"spec": {}})["status"]["token"]
    eventually(
        lambda: kube_plane.request_json("GET", jobs.format(mine), token=token)[0] == 200, "the right has arrived"
    )
    return Scene(kube_plane, tmp_path_factory.mktemp("ui"), mine, other, token)


async def test_a_token_of_one_namespace_sees_that_namespace_and_no_name_of_another(scene):
    async with scene.page(scene.token, "-n", scene.mine) as session:
        text, found = await scene.lanes(session, lambda found: found["items"] and found["capacity"]["problem"])
        (item,) = found["items"]
        assert (item["namespace"], item["name"]) == (scene.mine, GIVER)
        assert [mark["text"] for mark in item["marks"]] == ["gave 2 of 4 trainers to another workload"]
        assert 'cannot list resource "nodes" in API group "" at the cluster scope' in found["capacity"]["problem"]
        assert (found["capacity"]["resources"], found["problems"], found["disconnectedSince"]) == ([], [], None)
        assert scene.other not in text
        assert RECEIVER not in text
        async with session.get(f"/api/why/TrainingJob/{scene.other}/{RECEIVER}") as answer:
            assert (answer.status, "forbidden" in (await answer.json())["error"]) == (404, True)


async def test_a_token_of_one_namespace_sees_nothing_of_all_and_what_is_missing(scene):
    async with scene.page(scene.token, "-A") as session:
        text, found = await scene.lanes(session, lambda found: len(found["problems"]) == 2)
        assert found["items"] == []
        assert {each["rejected"] for each in found["problems"]} == {True}
        assert RECEIVER not in text


async def test_an_administrator_sees_who_gave_to_whom_and_the_capacity(scene):
    async with scene.page(scene.plane.admin_token, "-A") as session:
        _, found = await scene.lanes(session, lambda found: found["items"] and found["capacity"]["resources"])
        marks = {each["name"]: [mark["text"] for mark in each["marks"]] for each in found["items"]}
        assert marks[GIVER] == [f"gave 2 of 4 trainers to TrainingJob {scene.other}/{RECEIVER}"]
        assert marks[RECEIVER] == [f"received capacity of TrainingJob {scene.mine}/{GIVER}, which gave 2 of 4 trainers"]
        assert [each["name"] for each in found["capacity"]["resources"]][:1] == ["cpu"]


@pytest.mark.parametrize("token", ["expired", "x" * 2000])
async def test_a_token_that_is_not_valid_is_named(scene, token):
    async with scene.page(token, "-n", scene.mine) as session:
        _, found = await scene.lanes(session, lambda found: len(found["problems"]) == 2)
        assert found["items"] == []
        assert all("Unauthorized" in each["message"] for each in found["problems"])
        assert found["capacity"]["resources"] == []
