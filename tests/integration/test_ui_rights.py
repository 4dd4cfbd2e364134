"""`raytide ui` with the rights of its caller: a token of one namespace, of an administrator, and one that is not valid.

The command runs as a process beside a real API server, which checks the rights; nothing else runs.
"""

import asyncio
import re
import secrets
import ssl
import sys
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from aiohttp import ClientSession, TCPConnector

from integration.cluster_under_test import JOB_CRD
from integration.embedded_cluster import PATIENCE_S
from raytide.api.sharing_record import RECLAIMED, ResizeNote, SharingRecord, encode_record
from raytide.api.trainingjob_constants import SHARING_ANNOTATION
from raytide_sandbox.certificates import make_certificates
from raytide_sandbox.kubeconfig import build_kubeconfig, write_private
from support.plane_admin import PlaneAdmin
from support.training_builders import trainingjob
from support.ui_site import NEW

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

    @asynccontextmanager
    async def site(self, *words):
        """The address of `raytide ui --auth kubernetes`, which has the administrator's token."""
        kubeconfig = self.folder / f"kubeconfig-{secrets.token_hex(3)}"
        admin = {"server": self.plane.server, "authority": self.plane.authority, "token": self.plane.admin_token}
        write_private(kubeconfig, build_kubeconfig(**admin))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "raytide", "ui", "--auth", "kubernetes", "--port", "0", "--kubeconfig", str(kubeconfig), *words),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)).decode()
            yield re.search(r" at (https?://127\.0\.0\.1:\d+)/ to callers with a token\n", line)[1]
        finally:
            process.terminate()
            _, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
            assert b"Traceback" not in errors, errors.decode()

    async def lanes(self, session, is_shown, **params):
        """Text and JSON of the lanes, once they show that."""
        end = time.monotonic() + PATIENCE_S
        while True:
            async with session.get("/api/lanes", params=params) as answer:
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
    rules = [{"apiGroups": list(KINDS), "resources": list(KINDS.values()), "verbs": ["get", "list", "watch"]}]
    token = kube_plane.token_of_role(mine, rules, jobs.format(mine))
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


# --- a server for many -------------------------------------------------------------------------------------------------------


def caller(site, token, **more):
    return ClientSession(site, headers={"Authorization": f"Bearer {token}"}, **more)


async def test_each_caller_sees_what_its_own_token_may_list(scene):
    async with scene.site() as site:
        async with caller(site, scene.token) as dev:
            text, found = await scene.lanes(
                dev, lambda found: found.get("items") and found["capacity"]["resources"], namespace=scene.mine
            )
            assert [(each["namespace"], each["name"]) for each in found["items"]] == [(scene.mine, GIVER)]
            assert [mark["text"] for mark in found["items"][0]["marks"]] == ["gave 2 of 4 trainers to another workload"]
            assert found["elsewhere"]["workloads"] >= 1
            assert scene.other not in text
            assert RECEIVER not in text
            for namespace in (scene.other, ""):
                async with dev.get("/api/lanes", params={"namespace": namespace}) as answer:
                    assert (answer.status, "may not list" in (await answer.json())["error"]) == (403, True)
            async with dev.get(
                f"/api/why/TrainingJob/{scene.mine}/{GIVER}", params={"namespace": scene.mine}
            ) as answer:
                assert (answer.status, (await answer.json())["object"]["name"]) == (200, GIVER)
            async with dev.get(
                f"/api/why/TrainingJob/{scene.other}/{RECEIVER}", params={"namespace": scene.mine}
            ) as answer:
                assert (answer.status, "forbidden" in (await answer.json())["error"]) == (404, True)
            async with dev.post(
                "/api/plan", params={"namespace": scene.mine}, data=NEW, headers={"Content-Type": "application/yaml"}
            ) as answer:
                assert (answer.status, "forbidden" in (await answer.json())["error"]) == (403, True)
        async with caller(site, scene.plane.admin_token) as admin:
            _, found = await scene.lanes(admin, lambda found: len(found.get("items", ())) >= 2)
            assert {RECEIVER, GIVER} <= {each["name"] for each in found["items"]}
            assert found["elsewhere"] is None


@pytest.mark.parametrize("token", ["expired", "x" * 2000, ""])
async def test_a_caller_whose_token_is_not_valid_is_asked_to_sign_in(scene, token):
    async with scene.site() as site, caller(site, token) as session, session.get("/api/lanes") as answer:
        assert (answer.status, "sign in with" in (await answer.json())["error"]) == (401, True)


async def test_it_serves_https_with_the_certificate_that_it_is_given(scene, tmp_path):
    made = make_certificates(datetime.now(UTC), ["127.0.0.1"])
    (tmp_path / "tls.crt").write_bytes(made.server)
    (tmp_path / "tls.key").write_bytes(made.server_key)
    words = ("--tls-cert-file", str(tmp_path / "tls.crt"), "--tls-private-key-file", str(tmp_path / "tls.key"))
    trusted = TCPConnector(ssl=ssl.create_default_context(cadata=made.authority.decode()))
    async with scene.site(*words) as site, caller(site, scene.token, connector=trusted) as session:
        assert site.startswith("https://")
        _, found = await scene.lanes(session, lambda found: found.get("items"), namespace=scene.mine)
        assert [each["name"] for each in found["items"]] == [GIVER]
