"""Take the pictures of the page of `raytide ui` in docs/figures, from a real run.

Starts a sandbox of 3 nodes with 8 CPUs each, the operator and `raytide ui`, creates and scales RayClusters and TrainingJobs for some
minutes, and takes screenshots of the page in Chromium, light and dark. The containers only sleep. All processes end with this one.
`--serve` keeps everything running until Ctrl-C, and prints the address of the page. Called by `make pictures`.
"""

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from playwright.async_api import Page, async_playwright

from browser import Browser, BrowserMissingError, provide
from raytide.api import meta
from raytide.api.meta import Key
from raytide.kube.client import Client, PatchKind
from raytide.kube.kubeconfig import connect
from raytide.runtime.clock import Clock

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"
RAYTIDE = Path(sys.executable).parent / "raytide"
SIZE = {"width": 1360, "height": 830}
GPU = "nvidia.com/gpu"
"""Resource that is added to the status of the nodes."""
STEP_S = 12.0
"""Pause between two changes, so that the steps of the lanes are visible."""
ENVIRONMENT = {"ENABLE_INIT_CONTAINER_INJECTION": "false", "ENABLE_PROBES_INJECTION": "false"}
"""Of the operator: the pods have no Ray for probes and init containers."""
WHAT_IF_YAML = """\
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: ablation, namespace: research}
spec:
  framework: generic
  image: busybox
  trainer:
    entrypoint: exec sleep 3600
    min-instance: 3
    max-instance: 6
    resources: {requests: {cpu: "1", memory: 4Gi}}
  scaling: {rebalance: true}
---
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: tune, namespace: ml}
spec:
  headGroupSpec:
    template:
      spec:
        containers:
        - {name: ray-head, image: rayproject/ray, resources: {requests: {cpu: 250m, memory: 1Gi}}}
  workerGroupSpecs:
  - groupName: cpu
    replicas: 3
    template:
      spec:
        containers:
        - {name: ray-worker, image: rayproject/ray, resources: {requests: {cpu: 250m, memory: 2Gi}}}
"""
"""Objects for the view "What if": for the RayCluster there is free capacity, for the job other jobs are scaled down."""


class Group(NamedTuple):
    """Worker group: number of workers, their GPUs and node selector."""

    replicas: int
    gpus: int = 0
    node_selector: dict[str, str] | None = None


def template(container: str, cpu: str, memory: str, group: Group) -> Json:
    """Pod template with a container that sleeps."""
    requests: Json = {"cpu": cpu, "memory": memory}
    limits = {GPU: str(group.gpus)} if group.gpus else {}
    resources = {"requests": requests | limits, "limits": limits}
    spec = {
        "containers": [{"name": container, "image": "busybox", "command": ["sleep", "3600"], "resources": resources}],
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": group.node_selector or {},
    }
    return {"spec": spec}


def raycluster(namespace: str, name: str, **groups: Group) -> Json:
    """A RayCluster with these groups."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"ray.io/overwrite-container-cmd": "true"}},
        "spec": {
            "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head", "250m", "1Gi", Group(1))},
            "workerGroupSpecs": [
                {
                    "groupName": name,
                    "replicas": group.replicas,
                    "minReplicas": 0,
                    "maxReplicas": 16,
                    "rayStartParams": {},
                    "template": template("ray-worker", "1", "3Gi", group),
                }
                for name, group in groups.items()
            ],
        },
    }


def trainingjob(namespace: str, name: str, low: int, high: int, cpu: str = "1") -> Json:
    """An elastic TrainingJob without cooldowns."""
    trainer = {"entrypoint": "exec sleep 3600", "min-instance": low, "max-instance": high}
    trainer |= {"resources": {"requests": {"cpu": cpu, "memory": "4Gi"}}, "gracePeriodSeconds": 3}
    scaling = {"rebalance": True, "growCooldownSeconds": 0, "shrinkCooldownSeconds": 0}
    spec = {"framework": "generic", "image": "busybox", "trainer": trainer, "scaling": scaling}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


class Workloads:
    """Creates and scales the objects of the run."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def run(self) -> None:
        """Create and scale all objects, with pauses."""
        for name in ("ml", "research", "team-a", "team-b", "web"):
            await self._client.create(meta.NAMESPACES, {"metadata": {"name": name}})
        async for node in self._client.list(meta.NODES):
            gpus = {GPU: "2"}
            body = {"status": {"capacity": gpus, "allocatable": gpus}}
            await self._client.patch_status(meta.NODES, Key("", node["metadata"]["name"]), body)
        await self._create(trainingjob("team-a", "text-bert", 4, 12))
        await self._pause()
        await self._create(raycluster("web", "serve", cpu=Group(4)))
        await self._pause()
        await self._create(
            raycluster("ml", "vision-rl", gpu=Group(3, gpus=1), tpu=Group(2, node_selector={"accelerator": "tpu"}))
        )
        await self._create(trainingjob("research", "huge", 2, 4, cpu="12"))
        await self._pause()
        await self._create(trainingjob("team-b", "gpt", 4, 10))
        await self._pause(2)
        await self._scale("web", "serve", 2)
        await self._pause()
        await self._create(raycluster("ml", "etl", **{"on-demand": Group(2)}))
        await self._pause()
        await self._scale("ml", "etl", 4)
        await self._pause()
        await self._scale("web", "serve", 3)
        await self._pause()
        await self._create(trainingjob("team-b", "speech", 2, 6))
        await self._pause(2)
        await self._scale("ml", "etl", 3)
        await self._pause(2)

    async def _create(self, obj: Json) -> None:
        await self._client.create(meta.RAYCLUSTERS if obj["kind"] == "RayCluster" else meta.TRAININGJOBS, obj)

    async def _scale(self, namespace: str, name: str, replicas: int) -> None:
        patch = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": replicas}]
        await self._client.patch(meta.RAYCLUSTERS, Key(namespace, name), patch, kind=PatchKind.JSON)

    async def _pause(self, times: int = 1) -> None:
        await asyncio.sleep(STEP_S * times)


@contextlib.asynccontextmanager
async def running(
    *words: str | Path, environ: dict[str, str] | None = None, log: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A `raytide` process until the block ends."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            RAYTIDE, *words, env={**os.environ, **(environ or {})}, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def require_running(process: asyncio.subprocess.Process, log: Path) -> None:
    """Exit with the last line of its log if the process has ended, because the pictures would be incomplete."""
    if process.returncode is not None:
        lines = log.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "its log is empty")
        sys.exit(f"{log.stem} ended with exit code {process.returncode} during the run: {last}")


@contextlib.asynccontextmanager
async def sandbox(folder: Path) -> AsyncIterator[Path]:
    """The kubeconfig of a new sandbox, until the block ends."""
    state = folder / "s"
    words = ("--nodes", "3", "--node-cpu", "8", "--isolation", "plain")
    try:
        await _run("sandbox", "up", *words, "--state-dir", state)
        yield state / "kubeconfig"
    finally:
        await _run("sandbox", "down", "--state-dir", state)


async def _run(*words: str | Path) -> None:
    process = await asyncio.create_subprocess_exec(RAYTIDE, *words, stdout=asyncio.subprocess.DEVNULL)
    if await process.wait():
        sys.exit(f"raytide {' '.join(map(str, words))} failed")


async def address_of(process: asyncio.subprocess.Process) -> str:
    """The address that `raytide ui` prints first."""
    assert process.stdout is not None  # noqa: S101 - a pipe
    line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    found = re.search(r"http://\S+", line)
    if found is None:
        sys.exit(f"raytide ui printed {line!r}")
    return found[0]


@contextlib.asynccontextmanager
async def page_of(browser: Browser, address: str, scheme: Any) -> AsyncIterator[Page]:
    """The page in a new browser."""
    async with async_playwright() as playwright:
        environ = {**os.environ, **browser.environ}
        chromium = await playwright.chromium.launch(
            executable_path=browser.program, env=environ, args=["--no-sandbox", "--headless"]
        )
        try:
            page = await chromium.new_page(viewport=SIZE, color_scheme=scheme, device_scale_factor=1)
            await page.goto(address)
            await page.locator(".row").first.wait_for()
            yield page
        finally:
            await chromium.close()


async def take(browser: Browser, address: str, scheme: str, out: Path) -> None:
    """Take the pictures of one color scheme: the page, an explanation, and "What if"."""
    async with page_of(browser, address, scheme) as page:
        await page.locator("#connection[data-state=live]").wait_for()
        await page.wait_for_timeout(1500)
        await page.get_by_role("button", name="worker groups of ml/vision-rl").click()
        await page.locator(".row.group").first.wait_for()
        await page.get_by_role("treeitem").filter(has_text="team-a/text-bert").locator("path.mark").first.hover()
        await page.locator("#crosshair").wait_for()
        await page.screenshot(path=out / f"ui-{scheme}.png")
        await page.get_by_role("treeitem").filter(has_text="ml/vision-rl").first.click()
        await page.locator(".steps").wait_for()
        await page.screenshot(path=out / f"ui-why-{scheme}.png")
        await page.get_by_role("button", name="What if").click()
        await page.locator("#yaml").fill(WHAT_IF_YAML)
        await page.get_by_role("button", name="Show the effect").click()
        await page.locator("#effect li").first.wait_for()
        await page.screenshot(path=out / f"ui-what-if-{scheme}.png")


async def run(out: Path, *, is_served: bool) -> None:
    """Run the workloads and take all pictures, or serve the page until cancelled."""
    browser = None if is_served else await asyncio.to_thread(provide)
    folder = Path(tempfile.mkdtemp(prefix="rp"))
    try:
        async with contextlib.AsyncExitStack() as stack:
            kubeconfig = await stack.enter_async_context(sandbox(folder))
            words = ("--metrics-addr", "0", "--health-probe-bind-address", "0", "--sharing-period", "2s")
            log = folder / "operator.log"
            operator = await stack.enter_async_context(
                running("operator", "--kubeconfig", kubeconfig, *words, environ=ENVIRONMENT, log=log)
            )
            ui = running("ui", "--kubeconfig", kubeconfig, "-A", "--port", "0", log=folder / "ui.log")
            address = await address_of(await stack.enter_async_context(ui))
            print(address, flush=True)
            transport = await connect(kubeconfig)
            stack.push_async_callback(transport.close)
            await Workloads(Client(transport, clock=Clock())).run()
            require_running(operator, log)
            if browser is None:
                print("Ctrl-C ends it", flush=True)
                await asyncio.Event().wait()
            else:
                for scheme in ("light", "dark"):
                    await take(browser, address, scheme, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Take the pictures; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the pictures")
    parser.add_argument("--serve", action="store_true", help="take no pictures, keep everything running")
    options = parser.parse_args()
    try:
        asyncio.run(run(options.out, is_served=options.serve))
    except BrowserMissingError as error:
        print(f"not run: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
