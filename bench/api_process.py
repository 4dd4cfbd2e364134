"""Kubernetes API for benchmarks: the API server of the sandbox, and a fleet that makes pods Ready at once.

A process of its own, so that its CPU and memory do not count for the operator. Counts the requests of all clients but those with the
User-Agent `bench`; `GET /bench/requests` returns the counts, `POST /bench/ballast/<n>/<first>` stores n Ready pods of a RayCluster
of another controller. Started by `harness.py`; prints its port when it listens.
"""

import asyncio
import itertools
import json
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import yaml
from aiohttp import web

from raytide_sandbox.apiserver.http import application
from raytide_sandbox.apiserver.request_response import Request
from raytide_sandbox.apiserver.routes import Api
from raytide_sandbox.apiserver.store import Change, Store
from raytide_sandbox.controllers.manager import Controllers

Middleware = Callable[..., Awaitable[web.StreamResponse]]
CRD = Path(__file__).parents[1] / "crds" / "ray.io_rayclusters.yaml"
READY = [{"type": t, "status": "True"} for t in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
"""The status that a kubelet writes for a running pod."""


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
    """Store Ready pods of a RayCluster of another controller, as large as real ones."""
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ballast", "namespace": "default"},
        "spec": {"managedBy": "kueue.x-k8s.io/multikueue", "headGroupSpec": {"template": {"spec": {"containers": []}}}},
    }
    if store.find("rayclusters.ray.io", "default", "ballast") is None:
        store.create("rayclusters.ray.io", cluster)
    owner = store.get("rayclusters.ray.io", "default", "ballast")["metadata"]["uid"]
    for index in range(first, first + count):
        pod = ballast_pod("default", owner, index)
        pod["spec"]["nodeName"] = "node-0"
        pod["status"] = running(pod)
        store.create("pods", pod)


def ballast_pod(namespace: str, owner_uid: str, index: int) -> dict:
    """A worker of the RayCluster `ballast`, as large as a real one."""
    reference = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ballast", "uid": owner_uid}
    container = {"name": "ray-worker", "image": "rayproject/ray:2.60.0", "args": ["x" * 1500]}
    container["env"] = [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(30)]
    labels = {
        "ray.io/cluster": "ballast",
        "ray.io/node-type": "worker",
        "ray.io/group": "g",
        "ray.io/is-ray-node": "yes",
    }
    metadata = {"name": f"ballast-g-worker-{index:05d}", "namespace": namespace, "labels": labels}
    metadata["ownerReferences"] = [{**reference, "controller": True}]
    spec = {"restartPolicy": "Always", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def verb_of(request: web.Request) -> str:
    """Name of a request in the counts: LIST, WATCH, GET, or the method with the collection or subresource."""
    last = request.path.rsplit("/", 1)[1]
    if request.query.get("watch"):
        return f"WATCH {last}"
    if request.method == "GET":
        return f"LIST {last}" if last in ("pods", "services", "rayclusters") else "GET"
    return f"{request.method} {last}" if request.method == "POST" or last == "status" else request.method


def counting_middleware(store: Store, counter: Counter[str]) -> Middleware:
    """Middleware that counts the requests of all clients except the bench, and handles those to /bench."""

    @web.middleware
    async def answer(request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        words = request.path.strip("/").split("/")
        if words[0] != "bench":
            if request.headers.get("User-Agent", "") != "bench":
                counter[verb_of(request)] += 1
            return await handler(request)
        if words[1] == "ballast":
            ballast(store, int(words[2]), int(words[3]))
        return web.json_response(counter)

    return answer


async def listen(app: web.Application) -> int:
    """Serve on a free port of loopback; returns the port."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    port: int = listener.getsockname()[1]
    return port


async def main(*, has_fleet: bool) -> None:
    """Serve until killed."""
    numbers = itertools.count(1)
    store = Store(now=lambda: datetime.now(UTC), new_uid=lambda: f"uid-{next(numbers)}")
    api = Api(store, new_suffix=lambda: f"{next(numbers) % 100000:05d}")
    controllers = Controllers(store, has_scheduler=False)
    changed = asyncio.Event()
    store.subscribe(lambda _: changed.set())
    controllers.step(datetime.now(UTC))
    store.create("namespaces", {"metadata": {"name": "bench"}})
    store.create("nodes", {"metadata": {"name": "node-0"}})
    crd = msgspec.json.encode(yaml.safe_load(CRD.read_text()))
    made = api.handle(Request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {}, {}, crd))
    assert made.status == 201, made.body
    app = application(api)
    app.middlewares.append(counting_middleware(store, Counter()))
    print(json.dumps({"port": await listen(app)}), flush=True)
    tasks = [asyncio.create_task(Fleet(store).run())] if has_fleet else []
    while not any(task.done() for task in tasks):
        changed.clear()
        controllers.step(datetime.now(UTC))
        await changed.wait()
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main(has_fleet="--no-fleet" not in sys.argv))
