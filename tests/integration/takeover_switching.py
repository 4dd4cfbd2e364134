"""Switches from one operator to another and waits until the new one has taken over.

`settled` asks an operator's metrics whether it has been through every RayCluster, and waits until it writes nothing any
more. `Peer` runs KubeRay's own manager for the way back; `KUBERAY=` is the path of a built one.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import aiohttp

from integration.cluster_under_test import DEFINITIONS, ClusterUnderTest
from support.kuberay import crds_without_schema, manager_command
from support.ports import free_port

QUIET_S: Final = 2.0
"""For so long nothing is written: more than any interval at which a status is."""
POLL_INTERVAL_S: Final = 0.2
LOOKS: Final = 300
OUR_PASSES: Final = 'raytide_passes{controller="raycluster"}'
THEIR_PASSES: Final = 'controller_runtime_reconcile_total{controller="raycluster'
"""However they ended; older versions have `raycluster-controller`."""


async def settled(port: int, metric: str, passes: int, cluster: ClusterUnderTest) -> None:
    """The operator whose metrics are served there has made so many passes, and is at rest."""
    await _passed(port, metric, passes)
    written = -1
    while written != cluster.writes.total():
        written = cluster.writes.total()
        await asyncio.sleep(QUIET_S)


async def _passed(port: int, metric: str, passes: int) -> None:
    for _ in range(LOOKS):
        if await _scraped(port, metric) >= passes:
            return
        await asyncio.sleep(POLL_INTERVAL_S)
    raise AssertionError(f"not within {LOOKS * POLL_INTERVAL_S} s: {passes} passes in {metric}")


async def _scraped(port: int, metric: str) -> float:
    """The sum of the series that begin so; 0 as long as they are not served."""
    with suppress(aiohttp.ClientConnectionError):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
            lines = (await response.text()).splitlines()
            return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))
    return 0.0


class Peer:
    """KubeRay's manager as a process."""

    def __init__(self, program: str, kubeconfig: Path, folder: Path) -> None:
        self._program = program
        self._kubeconfig = kubeconfig
        self._log = folder / "kuberay.log"

    async def take_over(self, cluster: ClusterUnderTest, clusters: int) -> None:
        """Run it until it has been through all clusters and is at rest."""
        install_other_kinds(cluster)
        cluster.writes.clear()
        port = free_port()
        health = f"127.0.0.1:{free_port()}"
        command = manager_command(self._program, self._kubeconfig, f"127.0.0.1:{port}", health)
        with self._log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
            try:
                await settled(port, THEIR_PASSES, clusters, cluster)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self._log.read_text()[-3000:]}") from None
            finally:
                process.terminate()
                await process.wait()


def install_other_kinds(cluster: ClusterUnderTest) -> None:
    """CRDs without a schema for the kinds that are KubeRay's alone."""
    for crd in crds_without_schema():
        status, answer = cluster.request("POST", DEFINITIONS, crd)
        assert status in (201, 409), answer
