"""Shared parts of the benchmarks: choice of the figure, result lines, diagrams, and an API server with an operator.

A file with figures has the table `FIGURES` and calls `run()` with it; `make bench P=P1B` passes the figure as the first argument.
Result lines have the format `ID value unit (bar …) ok|short`. `harness()` starts an API process (`api_process.py`) and an aiohttp
client on loopback, and on request `raytide operator`, and ends the processes it started.
"""

import asyncio
import csv
import json
import math
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import yaml

HERE = Path(__file__).parent
DIAGRAMS = HERE.parent / "docs" / "figures"
RAYTIDE = Path(sys.executable).parent / "raytide"
CLUSTERS = "/apis/ray.io/v1/namespaces/bench/rayclusters"
PODS = "/api/v1/namespaces/bench/pods"

Met: TypeAlias = Iterable[bool]
"""Whether each bar of a figure is met."""


def run(figures: Mapping[str, Callable[[], Met | Coroutine[Any, Any, Met]]]) -> int:
    """Measure the figure that the first argument names; returns the exit code: 0 if all of its bars are met."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in figures:
        print(f"the first argument has to be a figure: {', '.join(figures)}", file=sys.stderr)
        return 2
    measured = figures[name]()
    met = asyncio.run(measured) if isinstance(measured, Coroutine) else measured
    return 0 if all([*met]) else 1  # all bars of a generator, also after one that is not met


def result(name: str, value: float, unit: str, bar: float, *, more_is_better: bool = False) -> bool:
    """Print the result line; True when the bar is met."""
    is_met = value >= bar if more_is_better else value <= bar
    sign = ">=" if more_is_better else "<="
    print(f"{name} {value:.2f} {unit} (bar {sign} {bar:g}) {'ok' if is_met else 'short'}", flush=True)
    return is_met


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share (0..1) of all values is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation as text."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.2f} ± {deviation:.2f}"


def exponent(before: tuple[int, float], after: tuple[int, float]) -> float:
    """Exponent of the growth of a cost between two pairs of number and cost."""
    return math.log(after[1] / before[1]) / math.log(after[0] / before[0])


@dataclass(frozen=True)
class LogLogPanel:
    """A diagram of milliseconds by a number, with logarithmic axes, as SVG elements."""

    x0: int
    y0: int
    width: int
    height: int
    numbers: Sequence[int]
    most_ms: float
    """Upper end of the vertical axis, which starts at 1 ms."""

    def x(self, number: int) -> float:
        """Horizontal position."""
        return self.x0 + self.width * math.log(number / self.numbers[0]) / math.log(self.numbers[-1] / self.numbers[0])

    def y(self, ms: float) -> float:
        """Vertical position."""
        return self.y0 + self.height * (1 - math.log(max(ms, 1.0)) / math.log(self.most_ms))

    def frame(self, title: str) -> list[str]:
        """Title, frame and labels of the axes."""
        lines = [
            f'<rect x="{self.x0}" y="{self.y0}" width="{self.width}" height="{self.height}" fill="none" stroke="#999"/>',
            f'<text x="{self.x0}" y="{self.y0 - 10}">{title}</text>',
        ]
        for power in range(round(math.log10(self.most_ms)) + 1):
            ms = 10.0**power
            label, y = f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s", self.y(ms)
            lines.append(f'<line x1="{self.x0}" x2="{self.x0 + self.width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            lines.append(f'<text x="{self.x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        bottom = self.y0 + self.height + 16
        return lines + [
            f'<text x="{self.x(n):.1f}" y="{bottom}" text-anchor="middle">{n:,}</text>' for n in self.numbers
        ]

    def curve(self, points: Iterable[tuple[int, float]], color: str) -> list[str]:
        """Dots joined by lines."""
        spots = [(self.x(number), self.y(ms)) for number, ms in points]
        dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in spots]
        return dots + [
            f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{color}" stroke-width="2"/>'
            for a, b in pairwise(spots)
        ]


def svg(width: int, height: int, lines: Iterable[str]) -> str:
    """An SVG with a white background."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="#fff"/>', *lines, "</svg>\n"])


def write_table(name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file to the folder of the diagrams."""
    with (DIAGRAMS / f"{name}.csv").open("w", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerows([head, *rows])


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
    """The API process, the client of the bench, and the operator process if it is started."""

    def __init__(self, base: str, session: aiohttp.ClientSession, folder: Path) -> None:
        self.base = base
        self.session = session
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        """Written when the operator starts."""
        self.operator: subprocess.Popen[bytes] | None = None

    async def call(self, method: str, path: str, body: object = None) -> dict:
        """Send a request as the bench; returns the response."""
        async with self.session.request(method, self.base + path, json=body) as answer:
            assert answer.status < 300, f"{method} {path}: {answer.status} {(await answer.text())[:300]}"
            return await answer.json()

    async def requests(self) -> dict[str, int]:
        """Number of requests so far by their names, of all clients except the bench."""
        return await self.call("GET", "/bench/requests")

    def write_kubeconfig(self) -> None:
        """Write the kubeconfig for the operator and other commands."""
        context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "bench", "contexts": [context]}
        config["clusters"] = [{"name": "bench", "cluster": {"server": self.base}}]
        config["users"] = [{"name": "bench", "user": {}}]
        self.kubeconfig.write_text(yaml.safe_dump(config))

    async def start_operator(self) -> int:
        """Start the operator and wait until it is ready; returns its pid."""
        self.write_kubeconfig()
        log = (self.folder / "operator.log").open("wb")
        command = [RAYTIDE, "operator", "--kubeconfig", self.kubeconfig, "--metrics-addr", "0"]
        address = f"127.0.0.1:{free_port()}"
        command += ["--health-probe-bind-address", address]
        self.operator = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT)
        async with asyncio.timeout(30):
            while not await self._is_operator_ready(address):
                await asyncio.sleep(0.1)
        return self.operator.pid

    async def _is_operator_ready(self, address: str) -> bool:
        assert self.operator.poll() is None, (self.folder / "operator.log").read_text()[-2000:]
        try:
            async with self.session.get(f"http://{address}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def harness(*, has_fleet: bool = True) -> AsyncIterator[Harness]:
    """An API process and its client; ends it and the operator with the block."""
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
