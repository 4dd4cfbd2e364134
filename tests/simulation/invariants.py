"""What must hold at every write of the operator?

A judge between the operator and the API. It remembers what was wanted at each moment and which wish the operator had
read, and counts pods in the store itself, not in anybody's cache. It raises nothing while the history runs (the operator
would swallow it): it notes violations, and the history ends red. Rules RM:I1, I2, I4, I5, I7, I8, I13 and D15.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import msgspec

from raytide.kube.transport import Response, Transport

from simulation.world import NAMESPACE, RAYCLUSTERS, World, is_alive

WRITES_PER_SECOND = 10
ENOUGH = 20
"""So many violations make a history red enough: a product that runs wild would make it endless."""


def wanted(spec: Mapping[str, Any]) -> dict[str, int]:
    """Group -> number of worker pods that the spec asks for (RC:WG-2)."""
    counts = {}
    for group in spec.get("workerGroupSpecs") or []:
        low, high = group.get("minReplicas") or 0, group.get("maxReplicas", 2147483647)
        counts[group["groupName"]] = min(max(group.get("replicas") or 0, low), high)
    return counts


class Judge:
    """Carries requests on and looks at each: a Transport around a Transport."""

    def __init__(self, world: World, inner: Transport) -> None:
        self._world = world
        self._inner = inner
        self.stream = inner.stream
        self.close = inner.close
        self.violations: list[str] = []
        self.has_enough = asyncio.Event()
        self.writes: list[str] = []
        self._wishes: dict[str, list[tuple[int, dict[str, int], frozenset[str]]]] = defaultdict(list)
        self._read: dict[str, int] = {}
        self._shrunk: dict[tuple[str, str], int] = defaultdict(int)
        self._taken: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._late: dict[tuple[str, str], int] = defaultdict(int)
        self._moments: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WRITES_PER_SECOND + 1))
        world.store.subscribe(self._on_cluster, RAYCLUSTERS)

    # --- what is wanted --------------------------------------------------------------------------------------------
    def _on_cluster(self, change: Any) -> None:
        obj = change.entry.obj()
        uid, generation = obj["metadata"]["uid"], obj["metadata"]["generation"]
        wishes = self._wishes[uid]
        if wishes and wishes[-1][0] == generation:
            return
        counts = wanted(obj["spec"])
        before = wishes[-1][1] if wishes else {}
        for group in before:
            self._shrunk[uid, group] += max(0, before[group] - counts.get(group, 0))
        names = frozenset(
            name
            for group in obj["spec"].get("workerGroupSpecs") or []
            for name in (group.get("scaleStrategy") or {}).get("workersToDelete") or []
        )
        wishes.append((generation, counts, names))

    def _current_wishes(self, uid: str) -> list[tuple[int, dict[str, int], frozenset[str]]]:
        """The wish that the operator read last, and all that came after it."""
        read = self._read.get(uid, 0)
        return [wish for wish in self._wishes[uid] if wish[0] >= read]

    def expect_late(self, body: bytes | None) -> None:
        """A create commits long after its sender gave up, and perhaps after its sender was killed.

        Then nobody can know of it: a successor may have made another pod in its stead, and has to end one of the two. So
        each such pod may be one too many and one more to delete; nothing else is forgiven.
        """
        obj = msgspec.json.decode(body) if body else {}
        if obj.get("kind") == "Pod":
            owner, group = obj["metadata"]["ownerReferences"][0]["uid"], obj["metadata"]["labels"]["ray.io/group"]
            self._late[owner, group] += 1

    def _note_pace(self, method: str, path: str, body: bytes | None) -> None:
        """At most ten writes a second to one object, whatever fails (RM:I13)."""
        name = msgspec.json.decode(body or b"{}").get("metadata", {}).get("name", "") if method == "POST" else ""
        moments = self._moments[f"{path}/{name}"]
        moments.append(asyncio.get_running_loop().time())
        if len(moments) > WRITES_PER_SECOND and moments[-1] - moments[0] < 1.0:
            self._note(f"more than {WRITES_PER_SECOND} writes within a second: {method} {path} {name}")

    # --- what is done ----------------------------------------------------------------------------------------------
    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        if method == "DELETE":
            self._before_delete(path, body)
        if method != "GET" and "/events" not in path:
            self._note_pace(method, path, body)
        response = await self._inner.request(method, path, body=body, **rest)
        if method == "GET" and "/rayclusters/" in path and response.status == 200:
            metadata = msgspec.json.decode(response.body)["metadata"]
            self._read[metadata["uid"]] = metadata["generation"]
        elif method != "GET" and "/events" not in path:
            self.writes.append(f"{method} {path} -> {response.status}")
            self._after_write(method, path, response)
        return response

    def _note(self, text: str) -> None:
        self.violations.append(f"{self._world.now():%H:%M:%S.%f} {text}")
        if len(self.violations) >= ENOUGH:
            self.has_enough.set()

    def _after_write(self, method: str, path: str, response: Response) -> None:
        if "/rayclusters/" in path and not path.endswith("/status"):
            self._note(f"the operator wrote a spec: {method} {path}")
        if method == "POST" and path.endswith(("/pods", "/services")) and response.status == 201:
            self._after_create(msgspec.json.decode(response.body))

    def _after_create(self, obj: dict[str, Any]) -> None:
        owner = next((ref for ref in obj["metadata"].get("ownerReferences") or [] if ref.get("controller")), None)
        labels = obj["metadata"].get("labels") or {}
        if owner is None or labels.get("ray.io/cluster") != owner["name"]:
            self._note(f"created without owner or cluster label: {obj['metadata']['name']}")
            return
        if obj["kind"] == "Service":
            services = [key for key in self._world.store.dependents(owner["uid"]) if key.resource == "services"]
            if len(services) > 1:
                self._note(f"{len(services)} head services of {owner['name']}")
            return
        uid, group = owner["uid"], labels["ray.io/group"]
        alive = [
            p for p in self._world.pods(uid) if p["metadata"]["labels"].get("ray.io/group") == group and is_alive(p)
        ]
        most = 1 if group == "headgroup" else max((w[1].get(group, 0) for w in self._current_wishes(uid)), default=0)
        if len(alive) > most + self._late[uid, group]:
            self._note(f"{len(alive)} live pods of {owner['name']}/{group}, wanted at most {most}")

    def _before_delete(self, path: str, body: bytes | None) -> None:
        options = msgspec.json.decode(body) if body else {}
        name = path.rsplit("/", 1)[1]
        asked = (options.get("preconditions") or {}).get("uid")
        if not asked:
            self._note(f"delete without uid: {path}")
        entry = self._world.store.find("pods", NAMESPACE, name)
        if entry is None or entry.uid != asked or entry.is_terminating:
            return
        pod = entry.obj()
        owner = (pod["metadata"].get("ownerReferences") or [{}])[0]
        if owner.get("kind") != "RayCluster":
            self._note(f"deletes a pod of a stranger: {name}")
            return
        uid, group = owner["uid"], pod["metadata"]["labels"]["ray.io/group"]
        is_named = any(name in wish[2] for wish in self._wishes[uid])
        if is_named or not is_alive(pod) or group == "headgroup":
            return
        self._taken[uid, group].add(entry.uid)
        if len(self._taken[uid, group]) > self._shrunk[uid, group] + self._late[uid, group]:
            self._note(f"deleted more of {owner['name']}/{group} than anybody asked for: {name}")
