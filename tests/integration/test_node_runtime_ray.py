"""Real Ray in pods, exactly as KubeRay starts it, in each mode this machine allows; part of `make presubmit`."""

import asyncio
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from raytide_sandbox.container_runtime import process_tags
from raytide_sandbox.container_runtime.detect import choose_runtime
from raytide_sandbox.container_runtime.interface import (
    Container,
    ContainerConfig,
    ExecConfig,
    PodSandboxConfig,
    Runtime,
    Sandbox,
)
from support.deadlines import PATIENCE
from support.node_modes import BOTH_MODES, now

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

START = (
    "ulimit -n 65536; ray start {where} --block --dashboard-agent-listen-port=52365 --metrics-export-port=8080"
    " --num-cpus=1 --memory=2147483648"
)
AGENT_IS_WELL = "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success"
JOB = """
import os, time, ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=1)
def where():
    time.sleep(0.5)
    return os.environ["HOSTNAME"]
print(*sorted(set(ray.get([where.remote() for _ in range(8)]))))
"""
STAYING_JOB = """
import os, sys, time, ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Actor:
    def make(self):
        return os.environ["HOSTNAME"], bytes(5_000_000)
    def size(self, made):
        return len(made[1])
actors = [Actor.remote() for _ in range(2)]
made = [actor.make.remote() for actor in actors]
assert ray.get([actor.size.remote(one) for actor in actors for one in made]) == [5_000_000] * 4
print(*sorted(host for host, _ in ray.get(made)), flush=True)
time.sleep(600)
"""


class Clusters:
    """Ray pods of one runtime."""

    def __init__(self, runtime: Runtime, directory: Path) -> None:
        self.runtime = runtime
        self.directory = directory
        self.names: dict[str, list[str]] = {}

    async def pod(self, name: str, where: str, ray_address: str) -> tuple[Sandbox, Container]:
        sandbox = await self.runtime.create_sandbox(
            PodSandboxConfig(
                uid=name, namespace="default", name=name, hostname=name, memory_limit_bytes=2 << 30, shm_bytes=1 << 30
            )
        )
        self.names[f"{name}-svc.default.svc.cluster.local"] = [sandbox.ip]
        self.runtime.set_names(self.names)
        config = ContainerConfig(
            name="ray",
            image="rayproject/ray:2.46.0",
            argv=("/bin/bash", "-c", "--", START.format(where=where)),
            env={"RAY_ADDRESS": ray_address, "RAY_USAGE_STATS_ENABLED": "0"},
            log_path=self.directory / f"{name}.log",
        )
        return sandbox, await self.runtime.start_container(sandbox, config)

    async def call(self, container: Container, *argv: str) -> tuple[int, str]:
        running = await self.runtime.exec(container, ExecConfig(argv=argv))
        text = b""
        while chunk := await running.stdout.read():
            text += chunk
        return (await running.wait()).code, text.decode()

    async def wait_until_well(self, container: Container) -> None:
        async with asyncio.timeout(60 * PATIENCE):
            while (await self.call(container, "bash", "-c", AGENT_IS_WELL))[0] != 0:
                assert container.exit is None, container.config.log_path.read_text()
                await asyncio.sleep(0.2)


@pytest.fixture(params=BOTH_MODES)
async def clusters(request: pytest.FixtureRequest) -> AsyncIterator[Clusters]:
    directory = Path(tempfile.mkdtemp(prefix="rt"))
    choice = await choose_runtime(request.param, state_dir=directory / "s", now=now)
    try:
        yield Clusters(choice.runtime, directory)
    finally:
        await choice.runtime.stop()
        shutil.rmtree(directory)


async def test_two_clusters_at_once_keep_to_themselves_and_run_tasks_on_all_their_nodes(clusters: Clusters) -> None:
    heads = [await clusters.pod(name, "--head --dashboard-host=0.0.0.0", "127.0.0.1:6379") for name in ("one", "two")]
    await asyncio.gather(*(clusters.wait_until_well(container) for _, container in heads))
    service = "one-svc.default.svc.cluster.local:6379"
    worker = await clusters.pod("worker", f"--address={service}", service)
    await clusters.wait_until_well(worker[1])
    for (_, head), hosts in zip(heads, ({"one", "worker"}, {"two"}), strict=True):
        code, text = await clusters.call(head, "python", "-c", JOB)
        assert code == 0, text
        assert set(text.split()) == hosts
    for sandbox, _ in heads:
        connection = await clusters.runtime.connect(sandbox, 8265, 2)
        connection.close()
    pods = [*heads, worker]
    for _, container in pods:
        await clusters.runtime.signal(container, signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*(container.wait() for _, container in pods)), 20 * PATIENCE)


def beyond_loopback(pids: set[int]) -> dict[str, list[str]]:
    """What these processes listen on, apart from loopback: command -> addresses and ports."""
    found: dict[str, list[str]] = {}
    text = subprocess.run(["ss", "-Hltunp"], capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        address, _, port = line.split()[4].rpartition(":")
        is_loopback = address.strip("[]").removeprefix("::ffff:").startswith("127.") or address == "[::1]"
        for pid in {int(word) for word in re.findall(r"pid=(\d+)", line)} & pids:
            if not is_loopback:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.setdefault(command[:80], []).append(f"{address}:{port}")
    return found


@pytest.mark.rule("FD:SEC-F2")
@pytest.mark.skipif(shutil.which("ss") is None, reason="there is no ss, which lists sockets")
@pytest.mark.parametrize("clusters", [pytest.param("plain", marks=pytest.mark.node_mode("plain"))], indirect=True)
async def test_all_that_ray_opens_where_pods_share_the_machines_network_is_on_loopback(clusters: Clusters) -> None:
    _, head = await clusters.pod("one", "--head --dashboard-host=0.0.0.0", "127.0.0.1:6379")
    await clusters.wait_until_well(head)
    service = "one-svc.default.svc.cluster.local:6379"
    _, worker = await clusters.pod("worker", f"--address={service}", service)
    await clusters.wait_until_well(worker)
    driver = await clusters.runtime.exec(worker, ExecConfig(argv=("python", "-c", STAYING_JOB)))
    async with asyncio.timeout(60 * PATIENCE):
        hosts = (await driver.stdout.read()).decode().split()  # its actors live on both nodes
    assert hosts == ["one", "worker"]
    mark = process_tags.node_mark((clusters.directory / "s").resolve())
    pids = process_tags.family(process_tags.marked(mark), mark)  # Ray's Python processes write over their environment
    assert len(pids) > 25, "a head and a worker with actors are more processes"
    assert beyond_loopback(pids) == {}
