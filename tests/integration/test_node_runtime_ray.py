"""Real Ray in pods, exactly as KubeRay starts it, in each mode this machine allows; part of `.ci/run`."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node_modes import BOTH_MODES, now
from raytide.sandbox.node.choose import choose_runtime
from raytide.sandbox.node.runtime import Container, ContainerConfig, ExecConfig, PodSandboxConfig, Runtime, Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

START = (
    "ulimit -n 65536; ray start {where} --block --dashboard-agent-listen-port=52365 --metrics-export-port=8080"
    " --num-cpus=1 --memory=2147483648"
)
AGENT_IS_WELL = "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success"
JOB = """
import time, ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=1)
def where():
    time.sleep(0.5)
    return ray.util.get_node_ip_address()
print(*sorted(set(ray.get([where.remote() for _ in range(8)]))))
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
        async with asyncio.timeout(60):
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
    expected = [{heads[0][0].ip, worker[0].ip}, {heads[1][0].ip}]
    for (_, head), ips in zip(heads, expected, strict=True):
        code, text = await clusters.call(head, "python", "-c", JOB)
        assert code == 0, text
        assert set(text.split()) == ips
    for sandbox, _ in heads:
        connection = await clusters.runtime.connect(sandbox, 8265, 2)
        connection.close()
    pods = [*heads, worker]
    for _, container in pods:
        await clusters.runtime.signal(container, signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*(container.wait() for _, container in pods)), 20)
