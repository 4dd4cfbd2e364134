"""A Kubernetes API for benchmarks: the sandbox's server, with a fleet that makes pods Ready at once.

Runs as a process of its own, so that its CPU and memory are not the operator's. Counts the requests of everybody whose
User-Agent is not `bench`, by verb; `GET /bench/requests` tells them, `POST /bench/ballast/<n>/<first>` stores n Ready pods of a
RayCluster that is somebody else's. Started by `rig.py`; prints its address when it listens.
"""

import asyncio
import itertools
import json
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import yaml
from aiohttp import web

from raytide.sandbox.apiserver.http import application
from raytide.sandbox.apiserver.messages import Request
from raytide.sandbox.apiserver.routes import Api
from raytide.sandbox.apiserver.store import Change, Store
from raytide.sandbox.controllers import Controllers

CRD = Path(__file__).parents[1] / "crds" / "ray.io_rayclusters.yaml"
READY = [{"type": t, "status": "True"} for t in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
"""Filled by people: what a kubelet says of a pod that runs."""


class Fleet:
    """Binds every pod and makes it Ready in two writes, as a scheduler and a kubelet would."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
        store.subscribe(self._see, "pods")

    def _see(self, change: Change) -> None:
        namespace, name = change.key.namespace, change.key.name
        if change.type == "ADDED" and "nodeName" not in change.entry.obj()["spec"]:
            self._pending.put_nowait(("start", namespace, name))
        elif change.type == "MODIFIED" and change.entry.is_terminating:
            self._pending.put_nowait(("end", namespace, name))

    async def run(self) -> None:
        """Serve pods in order of arrival."""
        while True:
            order, namespace, name = await self._pending.get()
            entry = self._store.find("pods", namespace, name)
            if entry is None:
                continue
            if order == "end":
                self._store.delete("pods", namespace, name, grace_s=0)
                continue
            pod = entry.obj()
            pod["spec"]["nodeName"] = "node-0"
            self._store.update("pods", pod)
            pod = self._store.get("pods", namespace, name)
            pod["status"] = running(pod)
            self._store.update("pods", pod, subresource="status")
            await asyncio.sleep(0)


def running(pod: dict) -> dict:
    """The status of a Ready pod."""
    statuses = [
        {"name": c["name"], "ready": True, "restartCount": 0, "state": {"running": {}}}
        for c in pod["spec"]["containers"]
    ]
    return {"phase": "Running", "podIP": "10.0.0.1", "conditions": READY, "containerStatuses": statuses}


def ballast(store: Store, count: int, first: int) -> None:
    """Ready pods of a RayCluster that we do not manage, of the size pods really have."""
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ballast", "namespace": "default"},
        "spec": {"managedBy": "kueue.x-k8s.io/multikueue", "headGroupSpec": {"template": {"spec": {"containers": []}}}},
    }
    if store.find("rayclusters.ray.io", "default", "ballast") is None:
        store.create("rayclusters.ray.io", cluster)
    owner = store.get("rayclusters.ray.io", "default", "ballast")["metadata"]["uid"]
    reference = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ballast", "uid": owner, "controller": True}
    for index in range(first, first + count):
        container = {"name": "ray-worker", "image": "rayproject/ray:2.60.0", "args": ["x" * 1500]}
        container["env"] = [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(30)]
        labels = {
            "ray.io/cluster": "ballast",
            "ray.io/node-type": "worker",
            "ray.io/group": "g",
            "ray.io/is-ray-node": "yes",
        }
        metadata = {"name": f"ballast-g-worker-{index:05d}", "namespace": "default", "labels": labels}
        metadata["ownerReferences"] = [reference]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        pod["spec"] = {"nodeName": "node-0", "restartPolicy": "Always", "containers": [container]}
        pod["status"] = running(pod)
        store.create("pods", pod)


def counting(counter: Counter[str]) -> object:
    """Middleware that counts requests by what they are."""

    @web.middleware
    async def count(request: web.Request, handler: object) -> web.StreamResponse:
        if request.headers.get("User-Agent", "") != "bench":
            verb = "WATCH" if request.query.get("watch") else request.method
            is_list = verb == "GET" and request.path.rsplit("/", 1)[1] in ("pods", "services", "rayclusters")
            counter[
                f"{'LIST' if is_list else verb} {request.path.rsplit('/', 1)[1] if verb == 'POST' else ''}".strip()
            ] += 1
        return await handler(request)

    return count


async def main() -> None:
    """Serve until killed."""
    numbers = itertools.count(1)
    store = Store(now=lambda: datetime.now(UTC), new_uid=lambda: f"uid-{next(numbers)}")
    api = Api(store, new_suffix=lambda: f"{next(numbers) % 100000:05d}")
    for name in ("default", "bench"):
        if store.find("namespaces", "", name) is None:
            store.create("namespaces", {"metadata": {"name": name}})
    crd = msgspec.json.encode(yaml.safe_load(CRD.read_text()))
    made = api.handle(Request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {}, {}, crd))
    assert made.status == 201, made.body
    controllers = Controllers(store)
    changed = asyncio.Event()
    store.subscribe(lambda _: changed.set())
    counter: Counter[str] = Counter()
    app = application(api)
    app.middlewares.append(counting(counter))

    async def tell(_: web.Request) -> web.Response:
        return web.json_response(counter)

    async def load(request: web.Request) -> web.Response:
        ballast(store, int(request.match_info["count"]), int(request.match_info["first"]))
        return web.json_response({})

    app.router.add_get("/bench/requests", tell)
    app.router.add_post("/bench/ballast/{count}/{first}", load)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(json.dumps({"port": site._server.sockets[0].getsockname()[1]}), flush=True)  # noqa: SLF001
    tasks = [] if "--no-fleet" in sys.argv else [asyncio.create_task(Fleet(store).run())]
    while not any(task.done() for task in tasks):
        changed.clear()
        controllers.step(datetime.now(UTC))
        await changed.wait()
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
