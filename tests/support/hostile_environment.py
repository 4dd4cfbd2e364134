"""The real operator with a hundred healthy RayClusters, and one hostile object at a time.

The embedded API in the caller's loop, `measured_operator.py` as a process with 512 MiB. A tenant has room for 60 pods, as a
quota would have it: what would be made beyond them is rejected, because a fake API that stores 300,000 pods measures itself.
"""

import asyncio
import itertools
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from integration.cluster_under_test import JOB_CRD, RAYCLUSTERS, TRAININGJOBS
from integration.embedded_cluster import CRDS, Cluster, until
from raytide_sandbox.apiserver.store import Entry
from support.builders import group, raycluster
from support.deadlines import PATIENCE
from support.hostile_objects import NAMESPACE, Hostile
from support.operator_process import tail
from support.ports import free_port
from support.training_builders import trainingjob

LIMIT_MIB = 512
HEALTHY = 100
MAX_PODS = 60
IDLE_POLLS = 12
IDLE_CPU_S = 0.03
"""An operator that uses no more in so many polls in a row (0.5 s at least), and never waits for a processor, has nothing left to do.
Polls count, not time: while this process is busy the operator may be waiting for its API."""
SHARING_SETTLE_S = 0.1
PLURALS = {"RayCluster": RAYCLUSTERS, "TrainingJob": TRAININGJOBS}
NODES = 200


def _let_everything_in(definition: dict[str, Any]) -> None:
    for version in definition["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


def host_of(obj: dict[str, Any]) -> dict[str, str]:
    return {"kubernetes.io/hostname": obj["metadata"]["name"]}


class HostileEnv:
    """The cluster, the operator, and what was measured of it."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster()
        self.log = folder / "operator.log"
        self._folder = folder
        self._longest_path = folder / "longest.json"
        self._turns = itertools.count()
        self._looked_at = 0.0
        self.is_ready = False
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """A hundred healthy clusters and an operator that has seen them all."""
        here = self.cluster
        await here.start()
        here.install_crd(JOB_CRD)
        for name in PLURALS.values():  # as under an older CRD; and a fake API that judges a megabyte measures itself
            here.edit("", name, _let_everything_in, CRDS)
        here.add_node("node", cpu="1000", memory="4000Gi", pods="5000")
        here.ensure_namespace(NAMESPACE)
        here.ensure_namespace("healthy")
        here.veto = self._reject
        for number in range(HEALTHY):
            here.create(
                RAYCLUSTERS, raycluster(group(replicas=1), name=f"healthy-{number}", namespace="healthy", uid="")
            )
        await self._start_operator()
        await until("every healthy cluster has its pods", lambda: self._pods("healthy") == 2 * HEALTHY, within_s=90)
        await self._idle()
        await self.longest()

    async def _start_operator(self) -> None:
        here = self.cluster
        self.health = f"127.0.0.1:{free_port()}"
        command = [sys.executable, Path(__file__).with_name("measured_operator.py"), LIMIT_MIB, self._longest_path]
        command += ["--kubeconfig", here.write_kubeconfig(self._folder / "kubeconfig")]
        command += ["--metrics-addr", "0", "--health-probe-bind-address", self.health]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *map(str, command),
                stdout=log,
                stderr=log,
                env={**os.environ, "RAYTIDE_SHARING_SETTLE": str(SHARING_SETTLE_S)},
            )

    async def stop(self) -> None:
        """SIGTERM, and an ordered end."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self._process.wait(), 30 * PATIENCE)
        await self.cluster.stop()

    async def restart(self) -> None:
        """End the operator and start it again, with all that is stored."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(self._process.wait(), 60 * PATIENCE)
        await self._start_operator()

    def last_words(self) -> str:
        return tail(self.log, 8)[-4000:]

    # --- one object ------------------------------------------------------------------------------------------------------
    async def meet(self, hostile: Hostile) -> dict[str, Any]:
        """Store it, see it answered and a neighbour served; returns what it cost."""
        await self.longest()
        self._reset_peak()
        for obj in hostile.objects:
            self.cluster.store.create(PLURALS[obj["kind"]], json.loads(json.dumps(obj)))
        await until(
            f"a condition or event contains {hostile.message!r}\n{self.last_words()}",
            lambda: self._is_answered(hostile),
            within_s=60,
        )
        await self._see_neighbour_served()
        await self._idle()  # a pass over it that follows at once, and a sharing pass, belong to it too
        return {**await self.longest(), "peak_mib": self._peak_mib()}

    async def follow_capacity(self) -> None:
        """A healthy TrainingJob, so that the operator follows pods, nodes and quotas, and 200 nodes."""
        for number in range(NODES):
            self.cluster.add_node(f"node-{number}", cpu="16", memory="64Gi")
            self.cluster.edit("", f"node-{number}", lambda obj: obj["metadata"].update(labels=host_of(obj)), "nodes")
        self.cluster.create(TRAININGJOBS, trainingjob(name="steady", namespace="healthy", uid="", low=1, high=4))
        await until("the healthy job has pods", lambda: self._pods("healthy") > 2 * HEALTHY)
        await self._idle()

    async def meet_many(self, plural: str, objects: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Start the operator with all of them stored and see a neighbor served; the longest step, the peak, the slowest /healthz.

        A start lists them all at once. A watch of the embedded API ends when a reader lags behind by so many bytes.
        """
        for obj in objects:
            self.cluster.store.create(plural, obj)
        await self.restart()
        has_ended = threading.Event()
        probing = asyncio.create_task(asyncio.to_thread(self._slowest_healthz_s, has_ended))
        try:
            await until("the operator has listed everything", lambda: self.is_ready, within_s=120)
            begun_at = time.monotonic()
            await self._see_neighbour_served()
            served_s = time.monotonic() - begun_at
            await self._idle()
        finally:
            has_ended.set()
            healthz_s = await probing
        return {**await self.longest(), "peak_mib": self._peak_mib(), "healthz_s": healthz_s, "served_s": served_s}

    def _slowest_healthz_s(self, has_ended: threading.Event) -> float:
        """Ask for both probes until it ends, from the first answer on."""
        slowest_s, self.is_ready = -1.0, False
        while not has_ended.wait(0.05):
            begun_at = time.monotonic()
            try:
                assert self._status("healthz") == 200
            except urllib.error.URLError:
                assert slowest_s < 0, "/healthz has been answered before"
                continue
            slowest_s = max(slowest_s, time.monotonic() - begun_at)
            self.is_ready = self._status("readyz") == 200
        return slowest_s

    def _status(self, probe: str) -> int:
        try:
            with urllib.request.urlopen(f"http://{self.health}/{probe}", timeout=60 * PATIENCE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    async def clear(self) -> None:
        """As if it had never been."""
        for key, _ in self.cluster.store.entries("nodes", ""):
            if key.name.startswith("worst-"):
                self.cluster.store.delete("nodes", "", key.name, grace_s=0)
        for plural in (*PLURALS.values(), "pods", "services", "configmaps", "events", "resourcequotas"):
            for key, _ in self.cluster.store.entries(plural, NAMESPACE):
                self.cluster.store.delete(plural, NAMESPACE, key.name, grace_s=0)  # no answer of a megabyte is written
        await until("the hostile namespace is empty", lambda: not self._pods(NAMESPACE), within_s=30)
        await self._idle()

    async def longest(self) -> dict[str, Any]:
        """The longest step since the last call."""
        assert self._process is not None
        assert self._process.returncode is None, f"the operator has ended:\n{self.last_words()}"
        self._longest_path.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        await until("the operator reports its longest step", self._longest_path.exists)
        found: dict[str, Any] = json.loads(self._longest_path.read_text())
        return found

    # --- inside ----------------------------------------------------------------------------------------------------------
    async def _see_neighbour_served(self) -> None:
        name = f"healthy-{next(self._turns) % HEALTHY}"
        before = self._pods("healthy")

        def grow(obj: dict[str, Any]) -> None:
            obj["spec"]["workerGroupSpecs"][0]["replicas"] += 1

        self.cluster.edit("healthy", name, grow, RAYCLUSTERS)
        await until("a healthy cluster grows as if alone", lambda: self._pods("healthy") > before, within_s=30)

    async def _idle(self) -> None:
        cpu_s: deque[float] = deque(maxlen=IDLE_POLLS + 1)

        def is_idle() -> bool:
            used_s, is_runnable = self._cpu_s_and_is_runnable()
            if is_runnable:  # on a busy machine work that is left may get no processor for a while
                cpu_s.clear()
            cpu_s.append(used_s)
            return len(cpu_s) > IDLE_POLLS and cpu_s[-1] - cpu_s[0] <= IDLE_CPU_S

        await until("the operator has nothing left to do", is_idle, within_s=60)

    def _cpu_s_and_is_runnable(self) -> tuple[float, bool]:
        assert self._process is not None
        process, states = Path(f"/proc/{self._process.pid}"), set[str]()
        for thread in (process / "task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                states.add((thread / "stat").read_text().rpartition(") ")[2].split()[0])
        fields = (process / "stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), "R" in states

    def _is_answered(self, hostile: Hostile) -> bool:
        notes = [str(entry.obj().get("message")) for entry in self._entries("events", NAMESPACE)]
        if hostile.message:
            return any(hostile.message in note for note in notes)
        return bool(notes or self._entries("pods", NAMESPACE)) or self._is_status_written()

    def _is_status_written(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._looked_at < 1:  # these objects are large
            return False
        self._looked_at = now
        entries = (entry for plural in PLURALS.values() for entry in self._entries(plural, NAMESPACE))
        return any("lastUpdateTime" in (entry.obj().get("status") or {}) for entry in entries)

    def _entries(self, plural: str, namespace: str) -> list[Entry]:
        return [entry for _, entry in self.cluster.store.entries(plural, namespace)]

    def _pods(self, namespace: str) -> int:
        return len(self._entries("pods", namespace))

    def _reject(self, namespace: str, plural: str, _obj: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if (namespace, plural) != (NAMESPACE, "pods") or self._pods(NAMESPACE) < MAX_PODS:
            return None
        words = "exceeded quota: tenant, requested: pods=1, used: pods=60, limited: pods=60"
        return 403, {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": words}

    def _reset_peak(self) -> None:
        assert self._process is not None
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def _peak_mib(self) -> float:
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
