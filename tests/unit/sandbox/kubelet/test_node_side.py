"""Nodes and leases, invalid pods, and the watch of pods."""

import asyncio
import contextlib
import json

import pytest
from aiohttp import web

from raytide_sandbox.kubelet.apiclient import ApiAccess, ApiClient, ApiStatusError, ApiUnavailableError
from raytide_sandbox.kubelet.kubelet_context import Host
from raytide_sandbox.kubelet.node_lease import Heartbeat
from raytide_sandbox.kubelet.node_status import NodeFacts, build_capacity, build_node_status
from raytide_sandbox.kubelet.rejected_pods import InvalidPodWorker
from support.deadlines import PATIENCE
from support.kubelet_fakes import FakeApi, build_pod, virtual_now

NODE = NodeFacts(
    name="n1", address="127.0.0.1", kubelet_port=10250, capacity=build_capacity("8", "32Gi", 110), runtime_name="x://1"
)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"


# --- nodes -------------------------------------------------------------------------------------------------------------
@pytest.mark.looptime
async def test_a_node_is_registered_and_renewed_every_ten_seconds():
    api = FakeApi()
    heartbeat = Heartbeat(api, [NODE], virtual_now)
    await heartbeat.register()
    assert ("POST", "/api/v1/nodes") in api.writes
    beating = asyncio.create_task(heartbeat.beat())
    await asyncio.sleep(35)
    beating.cancel()
    assert api.writes.count(("PATCH", LEASE)) == 4


@pytest.mark.looptime
async def test_registration_is_retried_and_a_failed_heartbeat_does_not_end_the_loop():
    api = FakeApi()
    api.failures = 2
    heartbeat = Heartbeat(api, [NODE], virtual_now)
    await heartbeat.register()
    api.failures = 3
    beating = asyncio.create_task(heartbeat.beat())
    await asyncio.sleep(60)
    assert not beating.done()
    beating.cancel()


@pytest.mark.looptime
async def test_the_node_status_has_allocatable_resources_and_the_kubelet_port():
    status = build_node_status(NODE, virtual_now(), virtual_now())
    assert status["allocatable"] == {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"


# --- pods that make no sense -------------------------------------------------------------------------------------------
@pytest.mark.looptime
async def test_an_invalid_pod_fails_and_is_released_when_it_is_deleted():
    api, raw = FakeApi(), build_pod()
    host = Host(
        api=api,
        runtime=None,
        events=None,
        now=virtual_now,
        directory=None,
        figures=None,
        service_host="",
        service_port=0,
    )
    pod = InvalidPodWorker(host, raw, "spec.containers is empty")
    living = asyncio.create_task(pod.run())
    await asyncio.sleep(1)
    assert (api.status["phase"], api.status["message"]) == ("Failed", "spec.containers is empty")
    assert ("DELETE", "/api/v1/namespaces/default/pods/p") not in api.writes
    pod.update({**raw, "metadata": {**raw["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    await living
    assert ("DELETE", "/api/v1/namespaces/default/pods/p") in api.writes


# --- the client --------------------------------------------------------------------------------------------------------
@contextlib.asynccontextmanager
async def serving(answer):
    """An API client against a server that answers with what `answer(request)` gives: objects, or text for a stream."""

    async def handler(request):
        found = answer(request)
        return web.Response(text=found) if isinstance(found, str) else web.json_response(found[1], status=found[0])

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    client = ApiClient(ApiAccess(base_url=f"http://127.0.0.1:{runner.addresses[0][1]}", token="t"))
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


def event(kind, name, version):
    return json.dumps({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}) + "\n"


async def test_an_error_response_has_the_servers_message():
    async with serving(lambda _: (409, {"message": "already there"})) as client:
        with pytest.raises(ApiStatusError) as caught:
            await client.request("POST", "/x", body={})
    assert (caught.value.status, caught.value.message) == (409, "already there")


async def test_a_refused_connection_is_unavailable():
    client = ApiClient(ApiAccess(base_url="http://127.0.0.1:1"))
    with pytest.raises(ApiUnavailableError):
        await client.get("/x")
    await client.close()


async def test_a_watch_resumes_where_it_was_and_lists_again_when_that_is_too_old():
    asked, lists = [], []
    streams = [event("ADDED", "a", "6") + event("BOOKMARK", "", "8"), event("MODIFIED", "a", "9"), "expired"]

    def answer(request):
        if "watch" not in request.query:
            return 200, {
                "items": [{"metadata": {"name": "old"}}],
                "metadata": {"resourceVersion": str(5 + 95 * len(lists))},
            }
        asked.append(request.query["resourceVersion"])
        found = streams.pop(0) if streams else event("ADDED", "b", "101")
        return (410, {"message": "too old"}) if found == "expired" else found

    seen = []
    async with serving(answer) as client, asyncio.timeout(10 * PATIENCE):
        async for change in client.list_and_watch("/api/v1/pods", lists.append):
            seen.append((change.type, change.object["metadata"]["name"]))
            if change.object["metadata"]["name"] == "b":
                break
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b")]
    assert asked == ["5", "8", "9", "100"]
    assert len(lists) == 2
