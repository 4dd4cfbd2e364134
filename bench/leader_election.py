"""Time from the end of the leading replica until another one reconciles, with the default lease of 30 s: TAKEOVER.

The replica ends by SIGTERM (measured from its exit), by SIGKILL, or by SIGKILL with an immediate restart of the container in the same
pod. Then a RayCluster is created; its first pod shows that a replica reconciles. The slowest round counts.
`python bench/leader_election.py TAKEOVER --kube` uses a real control plane instead of the embedded API.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from control_plane import HOME, PARTS
from raytide_sandbox.controlplane.processes import ControlPlane, PlaneSettings, find_binary
from support.operator_process import OperatorProcess
from support.plane_admin import PlaneAdmin

from harness import CLUSTERS, PODS, Met, cluster, harness, result, run, spread

LEASE_S = 30
LEASE = "/apis/coordination.k8s.io/v1/namespaces/{home}/leases/ray-operator-leader"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
PODS_OF = PODS + "?labelSelector=ray.io/cluster%3D{name}"


class Env:
    """An API server, and replicas that compete for the Lease."""

    def __init__(self, admin: object, kubeconfig: Path, folder: Path, home: str) -> None:
        self.call = admin.call
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._home = home
        self._clusters = 0

    def replica(self, uid: str) -> OperatorProcess:
        """A replica in the pod with this uid, not started."""
        flags = ("--leader-election-namespace", self._home)
        return OperatorProcess(self._kubeconfig, self._folder / f"{uid}.log", *flags, environment={"POD_UID": uid})

    async def wait_until_reconciled(self) -> None:
        """Create a RayCluster and wait until it has its first pod."""
        self._clusters += 1
        name = f"c{self._clusters}"
        await self.call("POST", CLUSTERS, cluster(name, 0))
        async with asyncio.timeout(3 * LEASE_S):
            while not (await self.call("GET", PODS_OF.format(name=name)))["items"]:
                await asyncio.sleep(0.02)

    async def leader(self, replicas: dict[str, OperatorProcess]) -> str:
        """Wait until one of the replicas holds the Lease; returns its uid."""
        async with asyncio.timeout(3 * LEASE_S):
            while True:
                lease = await self.call("GET", LEASE.format(home=self._home))
                if (holder := lease["spec"].get("holderIdentity")) in replicas:
                    return holder
                await asyncio.sleep(0.1)


async def take_over(env: Env, end: Callable[[OperatorProcess], None], *, is_restarted: bool = False) -> float:
    """Seconds from the end of the leading replica until a replica reconciles."""
    now = asyncio.get_running_loop().time
    replicas = {uid: env.replica(uid) for uid in ("one", "two")}
    try:
        for replica in replicas.values():
            await asyncio.to_thread(replica.start)
        await env.wait_until_reconciled()
        uid = await env.leader(replicas)
        end(replicas[uid])
        began = now()
        if is_restarted:
            restarting = asyncio.create_task(asyncio.to_thread(replicas[uid].start))
        await env.wait_until_reconciled()
        took_s = now() - began
        if is_restarted:
            await restarting
            assert await env.leader(replicas) == uid, "the other took over"
        return took_s
    finally:
        for replica in replicas.values():
            await asyncio.to_thread(replica.stop)


def kill(replica: OperatorProcess) -> None:
    """Kill the replica and wait for its exit."""
    os.kill(replica.pid, signal.SIGKILL)
    replica.stop()


@asynccontextmanager
async def embedded() -> AsyncIterator[Env]:
    """The API process of the sandbox."""
    async with harness() as ours:
        ours.write_kubeconfig()
        yield Env(ours, ours.kubeconfig, ours.folder, "bench")


@asynccontextmanager
async def real() -> AsyncIterator[Env]:
    """A real control plane; the replicas have the permissions of the chart."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="raytide-bench-")))
        plane = stack.enter_context(ControlPlane(folder / "plane", find_binary(), PlaneSettings(parts=PARTS)))
        admin = await stack.enter_async_context(PlaneAdmin(plane.server, plane.authority, plane.admin_token))
        await admin.install_crd()
        await admin.make_namespaces("bench", HOME)
        yield Env(admin, await admin.operator_account(HOME, folder), folder, HOME)


async def takeover() -> Met:
    """PF:TAKEOVER: time until another replica reconciles."""
    times: dict[str, list[float]] = {"SIGTERM": [], "SIGKILL": [], "restart": []}
    async with (real if "--kube" in sys.argv else embedded)() as env:
        for _ in range(ROUNDS):
            times["SIGTERM"].append(await take_over(env, OperatorProcess.stop))
            times["restart"].append(await take_over(env, kill, is_restarted=True))
            times["SIGKILL"].append(await take_over(env, kill))
    for name, taken in times.items():
        print(f"{name}: {spread(taken)} s over {len(taken)} rounds")
    return [
        result("TAKEOVER", max(times["SIGTERM"]), "s worst after a clean exit", 5),
        result("TAKEOVER", max(times["SIGKILL"]), "s worst after SIGKILL of the acting replica", LEASE_S + 5),
        result("TAKEOVER", max(times["restart"]), "s worst when the same pod's container restarts", 10),
    ]


FIGURES = {"TAKEOVER": takeover}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
