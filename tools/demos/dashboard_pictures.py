"""Pictures of the chart's Grafana dashboards in docs/figures, with data of a real run: `make dashboard-pictures`.

Starts a sandbox, the operator and Prometheus, plays the story of ui_pictures.py and beside it a RayCluster with real Ray whose
autoscaler follows a job, and lets Prometheus answer each query of each panel. The autoscalers are found as the chart's PodMonitor finds
them. Everything it starts ends with it.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientError, ClientSession
from rich.console import Console

import dashboard_svg
import promtool
from dashboard_svg import Answer, Series
from debian_packages import DebianError
from raytide.api.meta import PODS
from raytide.kube.client import Client
from raytide.kube.kubeconfig import connect
from raytide.runtime.clock import Clock
from ui_pictures import ENVIRONMENT, FIGURES, Story, require_running, running, sandbox

from demo import SAMPLE, demo_copy
from demo_cluster import DemoCluster
from demo_job import Job
from demo_scaling import Timeline

Json = dict[str, Any]

DASHBOARDS = Path(__file__).resolve().parents[2] / "helm" / "raytide" / "dashboards"
SCRAPE_S = 2
RATE_INTERVAL = "20s"
"""Of `$__rate_interval`: Grafana takes four scrapes at least."""
STEP_S = 2
JOB = "raytide-operator"
WITHIN_S = 300
TASKS, GANG = 24, 3
"""Of the Ray job."""
AUTOSCALER_PORT = 44217
"""Of the metrics of an autoscaler."""


def configuration(operator: str, autoscalers: Path) -> str:
    """The configuration of Prometheus: the operator at that address, and the autoscalers in that file of targets."""
    labels = {"namespace": "raytide-system", "pod": "raytide-operator-0"}
    jobs: list[Json] = [
        {"job_name": JOB, "honor_labels": True, "static_configs": [{"targets": [operator], "labels": labels}]},
        {"job_name": "autoscalers", "file_sd_configs": [{"files": [str(autoscalers)]}]},
    ]
    times = {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s"}
    return yaml.safe_dump({"global": times, "scrape_configs": jobs})


async def follow_autoscalers(client: Client, targets: Path) -> None:
    """Keep the targets in the file, as the chart's PodMonitor finds them; Debian's Prometheus knows no Kubernetes."""
    while True:
        found = []
        async for pod in client.list(PODS, label_selector="ray.io/node-type=head"):
            containers = (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
            address = pod.get("status", {}).get("podIP")
            if address and any(each["name"] == "autoscaler" for each in containers):
                header = pod["metadata"]
                labels = {"namespace": header["namespace"], "pod": header["name"]}
                labels["ray_io_cluster"] = header["labels"]["ray.io/cluster"]
                found.append({"targets": [f"{address}:{AUTOSCALER_PORT}"], "labels": labels})
        unfinished = targets.with_suffix(".new")
        unfinished.write_text(json.dumps(found))
        unfinished.replace(targets)
        await asyncio.sleep(1)


class Prometheus:
    """One that runs on loopback."""

    def __init__(self, address: str) -> None:
        self._api = f"http://{address}/api/v1"

    @classmethod
    @contextlib.asynccontextmanager
    async def run(cls, folder: Path, config: str) -> AsyncIterator["Prometheus"]:
        """Started, and ended with the block."""
        program = await asyncio.to_thread(promtool.provide, "prometheus")
        (folder / "prometheus.yml").write_text(config)
        address = f"127.0.0.1:{free_port()}"
        flags = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb")
        with (folder / "prometheus.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                program, *flags, f"--web.listen-address={address}", "--log.level=warn", stdout=log, stderr=log
            )
        try:
            prometheus = cls(address)
            await until(prometheus.is_ready)
            yield prometheus
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    async def is_ready(self) -> tuple[bool, str]:
        """Whether it answers."""
        with contextlib.suppress(ClientError):
            async with ClientSession() as session, session.get(f"{self._api}/status/runtimeinfo") as answer:
                return answer.status == HTTPStatus.OK, ""
        return False, ""

    async def answer(self, expression: str, start: float, end: float, *, is_instant: bool) -> tuple[Series, ...]:
        """The series of an expression, over time or at the end."""
        text = expression.replace("$__rate_interval", RATE_INTERVAL).replace('job=~"$name"', f'job="{JOB}"')
        text = text.replace("$namespace", ".+").replace("$name", ".+")
        query = (
            {"query": text, "time": str(end)}
            if is_instant
            else {"query": text, "start": start, "end": end, "step": STEP_S}
        )
        path = "query" if is_instant else "query_range"
        async with ClientSession() as session, session.get(f"{self._api}/{path}", params=query) as found:
            answer = await found.json()
        if answer["status"] != "success":
            sys.exit(f"{expression}: {answer['error']}")
        results = [each | {"values": each.get("values") or [each["value"]]} for each in answer["data"]["result"]]
        return tuple(
            Series(each["metric"], tuple((float(at), float(value)) for at, value in each["values"])) for each in results
        )


def free_port() -> int:
    """A port of loopback that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def until(is_so: Callable[[], Awaitable[tuple[bool, str]]]) -> None:
    """Wait for that state; raises TimeoutError."""
    async with asyncio.timeout(WITHIN_S):
        while not (await is_so())[0]:  # noqa: ASYNC110 - a state of the cluster sets no event
            await asyncio.sleep(0.5)


async def follow_demand(kubeconfig: Path) -> None:
    """A RayCluster with real Ray, whose autoscaler follows a job."""
    manifest = demo_copy(yaml.safe_load(SAMPLE.read_text()))
    name = manifest["metadata"]["name"]
    async with DemoCluster.at(kubeconfig) as cluster:
        await cluster.create(manifest)
        await until(lambda: cluster.is_head_ready(name))
        job = Job(cluster, await cluster.head(name), Timeline(Console()))
        async with job.running(TASKS, GANG):
            await until(job.has_ended)


async def draw(prometheus: Prometheus, out: Path, start: float, end: float) -> None:
    """All dashboards; prints the queries without data."""
    for path in sorted(DASHBOARDS.glob("*.json")):
        dashboard = json.loads(path.read_text())
        answers: dict[int, list[Answer]] = {}
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                series = await prometheus.answer(target["expr"], start, end, is_instant=target["instant"])
                answers.setdefault(panel["id"], []).append(Answer(target["legendFormat"], series))
                if not series:
                    print(f"no data: {dashboard['title']}: {panel['title']}")
        (out / f"dashboard-{path.stem.removeprefix('raytide-')}.svg").write_text(
            dashboard_svg.svg(dashboard, answers, start, end)
        )


async def run(out: Path) -> None:
    """The whole run."""
    folder = Path(tempfile.mkdtemp(prefix="rd"))
    try:
        async with contextlib.AsyncExitStack() as stack:
            kubeconfig = await stack.enter_async_context(sandbox(folder))
            address = f"127.0.0.1:{free_port()}"
            words = ("--metrics-addr", address, "--health-probe-bind-address", "0", "--sharing-period", "2s")
            words += ("--leader-election-namespace", "default")
            log = folder / "operator.log"
            operator = await stack.enter_async_context(
                running("operator", "--kubeconfig", kubeconfig, *words, environ=ENVIRONMENT, log=log)
            )
            targets = folder / "autoscalers.json"
            prometheus = await stack.enter_async_context(Prometheus.run(folder, configuration(address, targets)))
            transport = await connect(kubeconfig)
            stack.push_async_callback(transport.close)
            client, start = Client(transport, clock=Clock()), time.time()
            following = asyncio.create_task(follow_autoscalers(client, targets))
            await asyncio.gather(Story(client).play(), follow_demand(kubeconfig))
            following.cancel()
            require_running(operator, log)
            await draw(prometheus, out, start, time.time())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the pictures")
    try:
        asyncio.run(run(parser.parse_args().out))
    except DebianError as error:
        print(f"not run: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
