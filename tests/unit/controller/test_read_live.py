"""A live read of a deleted object causes no relist, although the watch has not shown the deletion yet."""

import asyncio

import pytest

from raytide.api.config import ClusterConfig
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import RAYCLUSTERS, Key
from raytide.controller.read_live import GONE_FOR_S, LiveReader
from raytide.kube.client import Client
from raytide.raycluster.controller import RayClusterController, RayClusterControllerOptions
from raytide.runtime.clock import Clock
from support import virtual_time
from unit.kube.scripted import ScriptedTransport, answer, line, status_error

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D2", "FD:REL-C")]
KEY = Key("ns", "demo")
DELETIONS = 1000
WATCH_LAG_S = 5.0


def cluster(name, version):
    metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version), "generation": 1}
    return {"metadata": metadata, "spec": {"managedBy": "example.com/other", "headGroupSpec": {"template": {}}}}


class LaggingServer(ScriptedTransport):
    """Serves RayClusters until they are deleted, and sends the watch events much later."""

    def __init__(self):
        super().__init__()
        self.there = {f"demo-{n}": cluster(f"demo-{n}", 10 + n) for n in range(DELETIONS)}
        self.lists = []
        self.responder = self.respond
        self.deleted = asyncio.Event()

    def respond(self, call):
        collection = f"{RAYCLUSTERS.path(None)}"
        if call.path == collection or "limit" in call.query:
            self.lists.append(call.path)
            items = list(self.there.values()) if call.path == collection else []
            return answer({"metadata": {"resourceVersion": "5000"}, "items": items})
        found = self.there.get(call.path.rpartition("/")[2])
        return answer(found) if found else status_error(404, "NotFound")

    async def stream(self, path, **_):
        yield b""
        if path == RAYCLUSTERS.path(None):
            await self.deleted.wait()
            await asyncio.sleep(WATCH_LAG_S)
            for n in range(DELETIONS):
                yield line("DELETED", cluster(f"demo-{n}", 6000 + n))
        await asyncio.sleep(10_000)


def test_a_thousand_deletions_before_their_watch_events_cause_no_list():
    async def main():
        server = LaggingServer()
        controller = RayClusterController(
            Client(server, clock=Clock()), clock=Clock(), config=ClusterConfig(), options=RayClusterControllerOptions()
        )
        running = asyncio.ensure_future(controller.run())
        await asyncio.sleep(30)
        assert controller.reconcile_loop.passes == DELETIONS
        server.lists.clear()
        keys, server.there = controller.keys(), {}
        server.deleted.set()
        for key in keys:  # as pods that are garbage ring, before the RayCluster's own end is seen
            controller.reconcile_loop.enqueue_coalesced(key)
        await asyncio.sleep(60)
        assert len(keys) == DELETIONS
        assert controller.keys() == []
        assert server.lists == []
        await controller.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual_time.run(main())


def reading(*answers):
    """A reader whose server gives these answers, and the number of requested lists."""
    wire = ScriptedTransport()
    wire.answers.extend(answers)
    asked = []
    return LiveReader(Client(wire, clock=Clock()), RAYCLUSTERS, clock=Clock()), asked


async def read(reader, asked, shown):
    try:
        return await reader.read(KEY, shown=lambda: shown, relist=lambda: asked.append(shown))
    except ApiUnavailableError:
        return "no answer"


@pytest.mark.parametrize(
    ("response", "shown", "result", "lists"),
    [
        pytest.param(answer(cluster("demo", 7)), 7, 7, 0, id="as it is shown"),
        pytest.param(answer(cluster("demo", 8)), 7, 8, 0, id="newer than it is shown"),
        pytest.param(answer(cluster("demo", 6)), 7, None, 1, id="older than it is shown: a restored store"),
        pytest.param(status_error(404, "NotFound"), None, None, 0, id="gone, and not shown"),
        pytest.param(status_error(404, "NotFound"), 7, None, 0, id="gone, and still shown"),
    ],
)
def test_one_reading(response, shown, result, lists):
    async def main():
        reader, asked = reading(response)
        found = await read(reader, asked, shown)
        version = int(found["metadata"]["resourceVersion"]) if isinstance(found, dict) else None
        assert (version, len(asked)) == (result, lists)
        assert (found == "no answer") == (shown is not None and result is None)

    virtual_time.run(main())


def test_what_stays_gone_although_it_is_shown_is_listed_once_and_not_at_each_reading():
    async def main():
        reader, asked = reading(*[status_error(404, "NotFound")] * 11)
        for _ in range(11):
            assert await read(reader, asked, 7) == "no answer"
            await asyncio.sleep(GONE_FOR_S / 5)
        assert len(asked) == 1

    virtual_time.run(main())
