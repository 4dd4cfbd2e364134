"""The shared environment of the operator's benchmarks.

An API process (`api_process.py`), `raytide operator` as another process, and a plain aiohttp client of the bench's own.
Everything is started fresh, on loopback, and ended by pid. Also the one format of a result line that `make bench`
promises: `ID value unit (bar …) ok|short`.
"""

import asyncio
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import yaml

HERE = Path(__file__).parent
RAYTIDE = Path(sys.executable).parent / "raytide"
CLUSTERS = "/apis/ray.io/v1/namespaces/bench/rayclusters"


def result(name: str, value: float, unit: str, bar: float, *, more_is_better: bool = False) -> bool:
    """Print the result line; True when the bar is met."""
    is_met = value >= bar if more_is_better else value <= bar
    sign = ">=" if more_is_better else "<="
    print(f"{name} {value:.2f} {unit} (bar {sign} {bar:g}) {'ok' if is_met else 'short'}", flush=True)
    return is_met


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of all lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation for people."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.2f} ± {deviation:.2f}"


def cluster(name: str, workers: int) -> dict:
    """A small RayCluster in namespace `bench`."""

    def template(role: str) -> dict:
        resources = {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}}
        return {"spec": {"containers": [{"name": role, "image": "rayproject/ray:2.60.0", "resources": resources}]}}

    group = {"groupName": "g", "replicas": workers, "minReplicas": 0, "maxReplicas": 2000, "template": template("w")}
    spec = {"rayVersion": "2.60.0", "headGroupSpec": {"template": template("head")}, "workerGroupSpecs": [group]}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "bench"},
        "spec": spec,
    }


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def rss_mb(pid: int) -> float:
    """Resident memory of one process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


class Harness:
    """One API process and, once started, one operator process."""

    def __init__(self, base: str, session: aiohttp.ClientSession, folder: Path) -> None:
        self.base = base
        self.session = session
        self._folder = folder
        self.kubeconfig = folder / "kubeconfig"
        """Written when the operator starts."""
        self.operator: subprocess.Popen[bytes] | None = None

    async def call(self, method: str, path: str, body: object = None) -> dict:
        """One request of the bench."""
        async with self.session.request(method, self.base + path, json=body) as answer:
            assert answer.status < 300, f"{method} {path}: {answer.status} {(await answer.text())[:300]}"
            return await answer.json()

    async def requests(self) -> dict[str, int]:
        """Requests of all clients except the bench so far."""
        return await self.call("GET", "/bench/requests")

    async def start_operator(self) -> int:
        """Start the operator and wait until it is ready; returns its pid."""
        context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "bench", "contexts": [context]}
        config["clusters"] = [{"name": "bench", "cluster": {"server": self.base}}]
        config["users"] = [{"name": "bench", "user": {}}]
        self.kubeconfig.write_text(yaml.safe_dump(config))
        log = (self._folder / "operator.log").open("wb")
        command = [RAYTIDE, "operator", "--kubeconfig", self.kubeconfig, "--metrics-addr", "0"]
        address = f"127.0.0.1:{free_port()}"
        command += ["--health-probe-bind-address", address]
        self.operator = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT)
        async with asyncio.timeout(30):
            while not await self._is_operator_ready(address):
                await asyncio.sleep(0.1)
        return self.operator.pid

    async def _is_operator_ready(self, address: str) -> bool:
        assert self.operator.poll() is None, (self._folder / "operator.log").read_text()[-2000:]
        try:
            async with self.session.get(f"http://{address}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def harness(*, has_fleet: bool = True) -> AsyncIterator[Harness]:
    """An API process, and whatever is started on it, ended at the end."""
    with tempfile.TemporaryDirectory(prefix="rt") as folder:
        api = subprocess.Popen(
            [sys.executable, str(HERE / "api_process.py"), *([] if has_fleet else ["--no-fleet"])],
            stdout=subprocess.PIPE,
        )
        ours = None
        try:
            port = json.loads(await asyncio.to_thread(api.stdout.readline))["port"]
            async with aiohttp.ClientSession(headers={"User-Agent": "bench"}) as session:
                ours = Harness(f"http://127.0.0.1:{port}", session, Path(folder))
                yield ours
        finally:
            for child in filter(None, [ours and ours.operator, api]):
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(15)
                except subprocess.TimeoutExpired:
                    child.kill()
