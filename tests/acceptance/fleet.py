"""A fleet of RayClusters on a real control plane, users that change them, and a minimal kubelet.

`Fleet` makes RayClusters, scales them and knows their pods from a watch of its own, which no fault ever touches;
`TinyKubelet` makes every pod Ready at once and ends it when it is told to. Every wait has a deadline and says what it
waited for. Used by the scenarios of this folder; accounts and namespaces come from plane_admin.py.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from support.builders import group, raycluster
from support.deadlines import PATIENCE
from support.plane_admin import ApiStatusError, PlaneAdmin

Json = dict[str, Any]

SYSTEM = "raytide-system"
"""Where operators live: their accounts and their lease."""
NODE = "node-of-the-test"
READY = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}
AT_ONCE = 16
"""Requests in flight, of the test itself."""
MERGE = "application/merge-patch+json"
GONE = (404, 409)
"""Not there any more, or another one of that name."""


def user_of(account: str) -> str:
    """What the audit log calls a service account."""
    return f"system:serviceaccount:{SYSTEM}:{account}"


async def eventually(what: str, is_so: Callable[[], Awaitable[Any]], *, within_s: float = 30.0) -> Any:
    """Poll for a state; returns the first true value. A busy machine needs `PATIENCE`."""
    ends_at = asyncio.get_running_loop().time() + within_s * PATIENCE
    while not (found := await is_so()):
        if asyncio.get_running_loop().time() >= ends_at:
            raise AssertionError(f"not within {within_s * PATIENCE:.0f} s: {what}")
        await asyncio.sleep(0.2)
    return found


async def allowing(codes: Iterable[int], call: Awaitable[Json]) -> Json | None:
    """Its answer; None when the API rejected it for one of these reasons."""
    try:
        return await call
    except ApiStatusError as error:
        if error.code not in codes:
            raise
        return None


async def side_by_side(works: Iterable[Awaitable[Any]]) -> None:
    """All of them, a few at once."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(work: Awaitable[Any]) -> None:
        async with slots:
            await work

    async with asyncio.TaskGroup() as tasks:
        for work in works:
            tasks.create_task(one(work))


class Pods:
    """The pods of a namespace as they are, from a list and a watch that no fault touches."""

    def __init__(self, admin: PlaneAdmin, namespace: str) -> None:
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.by_name: dict[str, Json] = {}
        self.created: dict[str, int] = {}
        self.doomed: dict[str, int] = {}
        """namespace/name -> the version at which it was first seen, and first seen to end."""
        self.on_change: Callable[[Json], None] = lambda _pod: None
        self.on_gone: Callable[[Json], None] = lambda _pod: None
        self._admin = admin

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            listed = await self._admin.call("GET", self.path)
            self.by_name = {pod["metadata"]["name"]: pod for pod in listed["items"]}
            for pod in listed["items"]:
                self._take("LISTED", pod)
            try:
                await self._watch(listed["metadata"]["resourceVersion"])
            except (aiohttp.ClientError, KeyError):
                continue

    async def _watch(self, version: str) -> None:
        rest = b""
        url = f"{self._admin.server}{self.path}?watch=1&resourceVersion={version}"
        async with self._admin.session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as stream:
            async for chunk in stream.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = msgspec.json.decode(line)
                    self._take(event["type"], event["object"])

    def _take(self, kind: str, pod: Json) -> None:
        meta = pod["metadata"]
        key, version = f"{meta['namespace']}/{meta['name']}", int(meta["resourceVersion"])
        self.created.setdefault(key, version)
        if kind == "DELETED" or "deletionTimestamp" in meta:
            self.doomed.setdefault(key, version)
        if kind == "DELETED":
            self.by_name.pop(pod["metadata"]["name"], None)
            self.on_gone(pod)
        else:
            self.by_name[pod["metadata"]["name"]] = pod
            self.on_change(pod)

    def alive(self, cluster: str, group_name: str = "cpu") -> list[str]:
        """Names of the pods of a group that do not terminate."""
        return [
            name
            for name, pod in self.by_name.items()
            if pod["metadata"]["labels"].get("ray.io/cluster") == cluster
            and pod["metadata"]["labels"].get("ray.io/group") == group_name
            and "deletionTimestamp" not in pod["metadata"]
        ]


class TinyKubelet:
    """Runs every pod of a namespace at once: bound, Ready; gone as soon as it is deleted."""

    def __init__(self, admin: PlaneAdmin, pods: Pods) -> None:
        self._admin = admin
        self._pods = pods
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._begun: set[tuple[str, bool]] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self.has_capacity: Callable[[Json], bool] = lambda _pod: True
        """Whether some node would take that pod."""
        self.ends_as: Callable[[Json], str] = lambda _pod: ""
        """The phase in which that pod ends at once; empty: it runs."""
        pods.on_change = self._see

    async def run(self) -> None:
        """Until cancelled; the node stays Ready meanwhile."""
        await allowing(GONE, self._admin.call("POST", "/api/v1/nodes", {"metadata": {"name": NODE}}))
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._pods.run())
            while True:
                now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "reason": "KubeletReady"}
                status = {"status": {"conditions": [ready], "capacity": {"pods": "9999"}}}
                await self._admin.call("PATCH", f"/api/v1/nodes/{NODE}/status", status, content=MERGE)
                await asyncio.sleep(10)

    def _see(self, pod: Json) -> None:
        is_ending = "deletionTimestamp" in pod["metadata"]
        task = (pod["metadata"]["uid"], is_ending)
        is_waiting = not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates")
        if task in self._begun or self._tasks is None or not (is_ending or is_waiting):
            return
        self._begun.add(task)
        self._tasks.create_task((self._end if is_ending else self._start)(pod))

    async def _start(self, pod: Json) -> None:
        path = f"{self._pods.path}/{pod['metadata']['name']}"
        if not self.has_capacity(pod):
            patch = self._admin.call(
                "PATCH", f"{path}/status", {"status": {"conditions": [UNSCHEDULABLE]}}, content=MERGE
            )
            await allowing(GONE, patch)
            return
        bound = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": NODE}}
        status = {"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}], "conditions": READY}
        status["containerStatuses"] = [_running(container) for container in pod["spec"]["containers"]]
        status["initContainerStatuses"] = [
            _running(each) for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always"
        ]
        if phase := self.ends_as(pod):
            status = {"phase": phase}
        async with self._slots:
            if await allowing(GONE, self._admin.call("POST", f"{path}/binding", bound)):
                patch = self._admin.call("PATCH", f"{path}/status", {"status": status}, content=MERGE)
                await allowing(GONE, patch)

    async def _end(self, pod: Json) -> None:
        path = f"{self._pods.path}/{pod['metadata']['name']}"
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        async with self._slots:
            await allowing(GONE, self._admin.call("DELETE", path, options))


def _running(container: Json) -> Json:
    """The status that a kubelet writes for a ready container."""
    status = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
    return {**status, "ready": True, "started": True, "state": {"running": {}}}


class Fleet:
    """RayClusters of one namespace, what was ordered of each, and what there is."""

    def __init__(self, admin: PlaneAdmin, namespace: str, pods: Pods) -> None:
        self.namespace = namespace
        self.targets: dict[str, int] = {}
        self.pods = pods
        self._admin = admin
        self.path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters"

    async def put(self, count: int, workers: int, **spec: object) -> None:
        """So many clusters of so many workers; `spec` has further fields."""
        names = [f"c{number:03d}" for number in range(count)]
        await side_by_side(self._put(name, workers, spec) for name in names)

    async def _put(self, name: str, workers: int, spec: Json) -> None:
        manifest = raycluster(group(replicas=workers, high=1000), name=name, namespace=self.namespace, **spec)
        manifest["metadata"] = {"name": name, "namespace": self.namespace}
        await self._admin.call("POST", self.path, manifest)
        self.targets[name] = workers

    async def order(self, name: str, workers: int, victims: Iterable[str] = ()) -> None:
        """Scale one cluster; the old list of victims is replaced."""
        strategy = {"workersToDelete": list(victims)}
        groups = group(replicas=workers, high=1000, scaleStrategy=strategy)
        self.targets[name] = workers
        await self._admin.call("PATCH", f"{self.path}/{name}", {"spec": {"workerGroupSpecs": [groups]}}, content=MERGE)

    async def order_at_random(self, random_: random.Random, most: int) -> None:
        """One cluster grows, shrinks by number, or shrinks by name."""
        name = random_.choice(sorted(self.targets))
        workers = random_.randint(0, most)
        alive = sorted(self.pods.alive(name))
        fewer = len(alive) - workers
        is_by_name = fewer > 0 and random_.random() < 0.5
        await self.order(name, workers, random_.sample(alive, fewer) if is_by_name else ())

    async def remove(self, name: str) -> None:
        """As `kubectl delete raycluster`."""
        self.targets.pop(name, None)
        await self._admin.call("DELETE", f"{self.path}/{name}")

    async def statuses(self) -> dict[str, Json]:
        """The status of each cluster."""
        answer = await self._admin.call("GET", self.path)
        return {item["metadata"]["name"]: item.get("status", {}) for item in answer["items"]}

    def counts(self) -> dict[str, int]:
        """How many workers live, by cluster."""
        found: dict[str, int] = defaultdict(int)
        for pod in self.pods.by_name.values():
            labels = pod["metadata"]["labels"]
            if labels.get("ray.io/group") == "cpu" and "deletionTimestamp" not in pod["metadata"]:
                found[labels["ray.io/cluster"]] += 1
        return {name: found[name] for name in self.targets}

    async def _are_pods_as_ordered(self) -> bool:
        """Whether each cluster has one head and exactly its workers, and nothing is on its way out."""
        wanted = sum(self.targets.values()) + len(self.targets)
        return len(self.pods.by_name) == wanted and self.counts() == self.targets

    async def is_reported(self) -> bool:
        """Whether the statuses have the same numbers."""
        statuses = await self.statuses()
        return all(
            status.get("state") == "ready"
            and status.get("readyWorkerReplicas", 0) == self.targets[name]
            and status.get("desiredWorkerReplicas", 0) == self.targets[name]
            for name, status in statuses.items()
        )

    async def steady(self, within_s: float) -> tuple[float, float]:
        """Wait until pods, and then statuses too, are as ordered; returns how long each took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await eventually("all pods are as ordered", self._are_pods_as_ordered, within_s=within_s)
            pods_s = loop.time() - began
            await eventually("all statuses say so", self.is_reported, within_s=within_s - pods_s / PATIENCE)
        except AssertionError as error:
            differing = {k: (v, self.targets[k]) for k, v in self.counts().items() if v != self.targets[k]}
            raise AssertionError(f"{error}; (has, wanted): {differing}; pods: {len(self.pods.by_name)}") from None
        return pods_s, loop.time() - began
