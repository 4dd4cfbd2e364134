"""Two operators, one Lease: which one writes, who takes over and when, and the logs and probes meanwhile."""

import asyncio
import itertools
import signal
import socket
import time
from collections import Counter

import aiohttp
import msgspec
import pytest
from aiohttp import web

from integration.embedded_cluster import PATIENCE_S, Cluster, Front, Operator, holds_for, until
from raytide_sandbox.apiserver.http import application
from raytide_sandbox.apiserver.request_response import Response
from support.builders import raycluster
from support.ports import free_port

NAMESPACE = "default"
NUMBERS = itertools.count(1)
LEASE = ("leases.coordination.k8s.io", "system", "ray-operator-leader")
LEASE_S = 3
FLAGS = (
    *("--leader-election-namespace", "system"),
    *("--leader-election-lease-duration", f"{LEASE_S}s"),
    *("--leader-election-renew-deadline", "2s"),
    *("--leader-election-retry-period", "400ms"),
)


class ReplicaProxy(Front):
    """The proxy between one operator and the API server: it counts writes, and can reject requests."""

    def __init__(self, cluster, name):
        super().__init__(cluster)
        self.name = name
        self.writes = Counter()
        self.usurped = Counter()
        """Writes that were received while the lease named another holder."""
        self.wrote_at = 0.0
        """When the last write came."""
        self.forbidden = set()
        """(verb, plural) that this proxy rejects."""

    def handle(self, request):
        words = request.path.strip("/").split("/")
        if words[-1] == "selfsubjectaccessreviews":
            review = msgspec.json.decode(request.body)
            asked = review["spec"]["resourceAttributes"]
            review["status"] = {"allowed": (asked["verb"], asked["resource"]) not in self.forbidden}
            return response_of(201, review)
        plural = next((word for word in reversed(words) if word in ("pods", "nodes", "rayclusters", "leases")), "")
        verb = {"POST": "create", "DELETE": "delete", "PUT": "update"}.get(request.method, "list")
        if (verb, plural) in self.forbidden:
            message = f'{plural} is forbidden: User "operator" cannot {verb} resource "{plural}"'
            return response_of(403, {"kind": "Status", "reason": "Forbidden", "message": message, "code": 403})
        if request.method != "GET" and "leases" not in words:
            self.writes[f"{request.method} {plural}"] += 1
            self.wrote_at = time.monotonic()
            if holder(self._cluster) != self.name:
                self.usurped[f"{request.method} {plural}"] += 1
        return super().handle(request)


def response_of(status, body):
    return Response(status, msgspec.json.encode(body), {"Content-Type": "application/json"})


class Replica:
    """An operator behind a door of its own."""

    def __init__(self, cluster, folder, name):
        self.name = name
        self.proxy = ReplicaProxy(cluster, name)
        self.health = free_port()
        self._cluster = cluster
        self._kubeconfig = folder / f"kubeconfig-{name}"
        self._runner = web.AppRunner(application(self.proxy), access_log=None, shutdown_timeout=0.1)
        self.operator = None

    async def start(self, *flags, identity=None):
        """As a pod whose uid is `identity`."""
        if not self._kubeconfig.exists():
            await self._runner.setup()
            listener = socket.create_server(("127.0.0.1", 0))
            await web.SockSite(self._runner, listener).start()
            whole, self._cluster.port = self._cluster.port, listener.getsockname()[1]
            self._cluster.write_kubeconfig(self._kubeconfig)
            self._cluster.port = whole
        address = f"127.0.0.1:{self.health}"
        self.operator = Operator(*FLAGS, "--health-probe-bind-address", address, *flags)
        await self.operator.start(self._kubeconfig, POD_UID=identity or self.name)
        return self

    async def close(self):
        if self.operator and self.operator.process.returncode is None:
            self.operator.process.send_signal(signal.SIGCONT)
            await self.operator.kill()
        await self._runner.cleanup()

    @property
    def log(self):
        return self.operator.log

    def signal(self, number):
        self.operator.process.send_signal(number)

    async def page(self, path):
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(f"http://127.0.0.1:{self.health}{path}") as response:
                    return response.status, await response.text()
            except aiohttp.ClientConnectionError:
                return 0, ""

    async def until_page(self, path, is_so):
        ends_at = asyncio.get_running_loop().time() + PATIENCE_S
        while not is_so(*(page := await self.page(path))):
            assert asyncio.get_running_loop().time() < ends_at, page
            await asyncio.sleep(0.05)
        return page

    async def ready(self):
        return await self.until_page("/readyz", lambda status, _: status == 200)


@pytest.fixture
async def cluster():
    cluster = Cluster()
    await cluster.start()
    cluster.ensure_namespace("system")
    yield cluster
    await cluster.stop()


@pytest.fixture
async def replicas(cluster, tmp_path):
    """Makes replicas, and ends them; none of them may have written while another one led."""
    made = []

    def make(name):
        made.append(Replica(cluster, tmp_path, name))
        return made[-1]

    yield make
    for replica in made:
        await replica.close()
    assert not any(replica.proxy.usurped for replica in made), [replica.proxy.usurped for replica in made]


def holder(cluster):
    entry = cluster.store.find(*LEASE)
    return entry.obj()["spec"]["holderIdentity"] if entry else None


async def makes_pods(cluster, replica):
    """A RayCluster of its own is worked on by that replica."""
    namespace = f"for-{replica.name}-{next(NUMBERS)}"
    cluster.apply(raycluster(namespace=namespace))
    await until(f"{replica.name} makes the pods", lambda: len(cluster.names(namespace)) == 3 and replica.proxy.writes)


LONG = ("--leader-election-lease-duration", "100s")
"""So long that a replica that leads in time did not wait for it."""


async def leader_and_standby(replicas, *flags):
    a, b = await replicas("a").start(*flags), replicas("b")
    await until("a leads", lambda: "became leader" in a.log)
    await b.start(*flags)
    await b.ready()
    return a, b


@pytest.mark.rule("RM:I10", "D10")
async def test_only_the_leader_writes_and_the_standby_is_ready(cluster, replicas):
    a, b = await leader_and_standby(replicas)
    await makes_pods(cluster, a)
    await holds_for("the standby writes nothing", lambda: not b.proxy.writes, seconds=2 * LEASE_S)
    assert "[+]lease standby, held by a" in (await b.page("/readyz"))[1]
    assert "[+]lease held, renewed 0." in (await a.page("/healthz"))[1]
    assert a.proxy.writes


@pytest.mark.rule("D10", "D11")
async def test_a_clean_shutdown_releases_the_lease_at_once(cluster, replicas):
    a, b = await leader_and_standby(replicas, *LONG)
    await makes_pods(cluster, a)
    assert await a.operator.stop() == 0
    steps = [a.log.index(words) for words in ("received a stop signal", "released lease", "shutdown complete")]
    assert steps == sorted(steps)
    assert a.operator.lines[-1].endswith("shutdown complete")
    await makes_pods(cluster, b)


@pytest.mark.rule("D10")
async def test_after_a_kill_the_other_takes_over(cluster, replicas):
    a, b = await leader_and_standby(replicas)
    await a.operator.kill()
    await makes_pods(cluster, b)


@pytest.mark.rule("D10")
async def test_a_restarted_container_of_the_same_pod_leads_again_at_once(cluster, replicas):
    a, b = await leader_and_standby(replicas, *LONG)
    await a.operator.kill()
    await a.start(*LONG)
    await until("a leads again", lambda: "became leader" in a.log)
    assert holder(cluster) == "a"
    await makes_pods(cluster, a)
    assert not b.proxy.writes


@pytest.mark.rule("RM:F8", "RM:I10")
async def test_a_leader_that_was_stopped_finds_its_term_over_and_writes_nothing(cluster, replicas):
    a, b = await leader_and_standby(replicas)
    await makes_pods(cluster, a)
    # Its events follow: one that is stopped between its check of the lease and its send leaves when it continues.
    await until("a has no more to write", lambda: time.monotonic() - a.proxy.wrote_at > 0.5)
    a.signal(signal.SIGSTOP)
    await until("b leads", lambda: "became leader" in b.log)
    cluster.apply(raycluster(namespace="meanwhile"))
    a.signal(signal.SIGCONT)
    await until("b makes the pods", lambda: len(cluster.names("meanwhile")) == 3)
    await until("a's term is over", lambda: "no longer leader" in a.log)
    await holds_for("a writes nothing", lambda: not a.proxy.usurped, seconds=1)
    assert a.operator.process.returncode is None
    assert await b.operator.stop() == 0
    await makes_pods(cluster, a)


async def test_an_event_while_standby_is_not_lost(cluster, replicas):
    a, b = await leader_and_standby(replicas)
    a.signal(signal.SIGSTOP)
    cluster.apply(raycluster())
    await until("b makes the pods", lambda: len(cluster.names(NAMESPACE)) == 3)
    assert b.proxy.writes


async def test_a_second_signal_ends_it_at_once(cluster, replicas):
    a = await replicas("a").start()
    await until("it leads", lambda: "became leader" in a.log)
    a.signal(signal.SIGSTOP)
    for number in (signal.SIGTERM, signal.SIGINT):
        a.signal(number)
    a.signal(signal.SIGCONT)
    assert await a.operator.ended() in (0, -signal.SIGINT, -signal.SIGTERM)


@pytest.mark.rule("D9")
async def test_a_missing_right_is_named_and_waited_for(cluster, replicas):
    a = replicas("a")
    a.proxy.forbidden = {("create", "pods"), ("list", "nodes")}
    await a.start()
    await until("it says so", lambda: "missing permission: create pods, needed to create and delete" in a.log)
    assert "missing optional permission: list nodes, needed to replace terminating pods" in a.log
    _, text = await a.until_page(
        "/readyz", lambda status, text: "missing permissions: create pods" in text and status == 503
    )
    assert "[-]rights missing permissions: create pods\n" in text
    assert (await a.page("/healthz"))[0] == 200


@pytest.mark.slow
@pytest.mark.rule("RM:F14", "D9")
async def test_a_right_that_is_withdrawn_makes_it_not_ready_until_it_is_given_back(cluster, replicas):
    a = await replicas("a").start()
    await a.ready()
    a.proxy.forbidden = {("list", "pods")}
    await a._runner.cleanup()  # its streams end
    await restart_proxy(a)
    _, text = await a.until_page("/readyz", lambda _, text: "cannot list resource" in text)
    assert "[-]stream-pods cannot" in text
    assert (await a.page("/healthz"))[0] == 200
    a.proxy.forbidden = set()
    await a.ready()


async def restart_proxy(replica):
    """Its connections were cut; it listens again where it did."""
    port = int(replica._kubeconfig.read_text().split("127.0.0.1:")[1].split()[0].strip("'\""))
    replica._runner = web.AppRunner(application(replica.proxy), access_log=None, shutdown_timeout=0.1)
    await replica._runner.setup()
    await web.TCPSite(replica._runner, "127.0.0.1", port, reuse_address=True).start()


async def test_a_crd_that_is_not_there_is_waited_for_and_reported(replicas, tmp_path):
    cluster = Cluster()
    await cluster.start(has_crd=False)
    a = Replica(cluster, tmp_path, "a")
    try:
        cluster.ensure_namespace("system")
        await a.start()
        nothing = "none served; waiting for CRD rayclusters.ray.io; waiting for CRD trainingjobs.paddlepaddle.org"
        status, text = await a.until_page("/readyz", lambda _, text: nothing in text)
        assert status == 503
        assert "[+]stream-rayclusters not needed: waiting for CRD rayclusters.ray.io" in text
        assert (await a.page("/healthz"))[0] == 200
        cluster.install_crd()
        await a.ready()
        await makes_pods(cluster, a)
        assert a.log.count("waiting for CRD rayclusters.ray.io") == 1
        assert "kopf" not in a.log
    finally:
        await a.close()
        await cluster.stop()


async def test_a_crd_that_is_deleted_is_waited_for_again(cluster, replicas):
    a = await replicas("a").start()
    await a.ready()
    await makes_pods(cluster, a)
    cluster.store.delete("customresourcedefinitions.apiextensions.k8s.io", "", "rayclusters.ray.io")
    await a.until_page("/readyz", lambda status, text: status == 503 and "waiting for CRD rayclusters.ray.io" in text)
    await until(
        "the kind is gone",
        lambda: not cluster.store.find("customresourcedefinitions.apiextensions.k8s.io", "", "rayclusters.ray.io"),
    )
    cluster.install_crd()
    await a.ready()
    cluster.apply(raycluster(namespace="again"))
    await until("it works again", lambda: len(cluster.names("again")) == 3)
    assert a.operator.process.returncode is None
