"""The operator as a process: start, errors of configuration, and shutdown."""

import asyncio
import re
import secrets
import socket

import aiohttp
import pytest

from integration.clusters import APIS, new_cluster
from integration.embedded_cluster import PATIENCE_S, Operator, has_reconciled, holds_while, until
from support.builders import raycluster
from support.image_packages import only_image_packages
from support.ports import free_port
from support.tls_proxy import TlsProxy

pytestmark = pytest.mark.slow


@pytest.fixture(params=APIS)
async def absent(request):
    """A cluster that is not there yet."""
    return new_cluster(request)


@pytest.fixture
async def cluster(absent):
    cluster = absent
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
def namespace():
    return f"process-{secrets.token_hex(4)}"


@pytest.fixture
async def operators():
    started = []
    yield started
    for operator in started:
        if operator.process and operator.process.returncode is None:
            await operator.kill()


async def start(operators, kubeconfig, *flags, **environ):
    operators.append(await Operator(*flags, is_forked=False).start(kubeconfig, **environ))
    return operators[-1]


async def page(port, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def test_a_missing_kubeconfig_is_one_line_with_the_remedies(operators, tmp_path):
    operator = await start(operators, None, HOME=str(tmp_path), KUBECONFIG="", KUBERNETES_SERVICE_HOST="")
    assert await operator.ended() == 1
    (line,) = operator.lines
    assert "raytide sandbox up" in line


async def test_in_a_pod_the_packages_of_the_container_image_are_enough(cluster, operators, tmp_path, namespace):
    account = tmp_path / "account"
    account.mkdir()
    plane = getattr(cluster, "plane", None)
    (account / "token").write_text(plane.admin_token if plane else "a token")
    async with TlsProxy(account, cluster.port) as tls_proxy:
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(tls_proxy.port)}
        environ |= {"KUBECONFIG": "", "POD_NAMESPACE": "default", **only_image_packages(tmp_path / "image", account)}
        operator = await start(operators, None, **environ)
        cluster.apply(raycluster(namespace=namespace))
        await until("it works", lambda: len(cluster.names(namespace)) == 3)
        assert await operator.stop() == 0
    assert "Traceback" not in operator.log


async def test_a_port_in_use_is_one_line_and_exit_code_1(cluster, operators, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        operator = await start(operators, kubeconfig, "--health-probe-bind-address", address)
        assert await operator.ended() == 1
    assert "cannot listen" in operator.lines[-1]
    assert "Traceback" not in operator.log


async def test_an_api_server_that_is_not_there_yet_is_waited_for(absent, operators, tmp_path, namespace):
    cluster = absent
    cluster.port = free_port()
    operator = await start(operators, cluster.write_kubeconfig(tmp_path / "kubeconfig"))
    await until("it says so", lambda: "does not respond, retrying every" in operator.log)
    await cluster.start(port=cluster.port)
    try:
        cluster.apply(raycluster(namespace=namespace))
        await until("it works", lambda: len(cluster.names(namespace)) == 3)
        assert operator.log.count("does not respond") == 1
        assert await operator.stop() == 0
    finally:
        await cluster.stop()


async def test_it_ends_while_waiting_for_the_api_server(absent, operators, tmp_path):
    cluster = absent
    cluster.port = free_port()
    operator = await start(operators, cluster.write_kubeconfig(tmp_path / "kubeconfig"))
    await until("it waits", lambda: "does not respond" in operator.log)
    assert await operator.stop() == 0


async def test_a_kind_that_is_not_there_yet_is_waited_for(absent, operators, tmp_path, namespace):
    cluster = absent
    await cluster.start(has_crd=False)
    try:
        operator = await start(operators, cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        await until("it says so", lambda: "waiting for CRD rayclusters.ray.io" in operator.log)
        cluster.install_crd()
        cluster.apply(raycluster(namespace=namespace))
        await until("it works", lambda: len(cluster.names(namespace)) == 3)
        assert await operator.stop() == 0
    finally:
        await cluster.stop()


@pytest.mark.rule("RM:I19")
async def test_a_restart_writes_nothing(cluster, operators, tmp_path, namespace):
    kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
    first = await start(operators, kubeconfig)
    cluster.apply(raycluster(namespace=namespace))
    await until("pods exist", lambda: len(cluster.names(namespace)) == 3)
    cluster.make_ready(namespace)
    await until("state is ready", lambda: cluster.status(namespace, "demo").get("state") == "ready")
    await first.kill()
    cluster.writes.clear()
    second = await start(operators, kubeconfig)
    await until("the second is at work", lambda: re.search(r"starting to reconcile \d+ RayClusters", second.log))
    await holds_while("nothing is written", lambda: not cluster.writes, has_reconciled(cluster, namespace))
    cluster.scale(namespace, "demo", 3)
    await until("but it works", lambda: len(cluster.names(namespace)) == 4)


async def test_probes(cluster, operators, tmp_path, namespace):
    health = free_port()
    kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
    await start(operators, kubeconfig, "--health-probe-bind-address", f"127.0.0.1:{health}")
    cluster.apply(raycluster(namespace=namespace))
    await until("it is at work", lambda: len(cluster.names(namespace)) == 3)
    async with asyncio.timeout(PATIENCE_S):  # RayClusters do not wait until the streams of TrainingJobs have listed
        while (ready := await page(health, "/readyz"))[0] != 200:  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.05)
    text = ready[1]
    assert [line.split()[0] for line in text.splitlines()] == [
        "[+]stream-rayclusters",
        "[+]stream-pods",
        "[+]stream-services",
        "[+]stream-headless-services",
        "[+]stream-trainingjobs",
        "[+]stream-trainingjob-pods",
        "[+]stream-trainingjob-services",
        "[+]stream-trainingjob-configmaps",
        "[+]stream-shared-trainingjobs",
        "[+]stream-capacity",
        "[+]api",
        "[+]queue",
        "[+]kinds",
        "[+]rights",
        "[+]sharing",
        "[+]optional-nodes",
        "[+]optional-trainingjob-nodes",
        "ok",
    ]
    assert re.search(r"\[\+\]stream-pods listed, last activity \d s ago", text)
    status, text = await page(health, "/healthz")
    assert status == 200
    assert "[+]stream-pods last activity" in text


@pytest.mark.rule("RC §6.2")
async def test_metrics_count_writes_and_provisioning(cluster, operators, tmp_path, namespace):
    port = free_port()
    operator = await Operator(metrics=f"127.0.0.1:{port}").start(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
    operators.append(operator)
    cluster.apply(raycluster(namespace=namespace))
    await until("pods exist", lambda: len(cluster.names(namespace)) == 3)
    cluster.make_ready(namespace)
    await until("state is ready", lambda: cluster.status(namespace, "demo").get("state") == "ready")
    await has_reconciled(cluster, namespace)  # the pass sets the metric after the write that made the state visible
    _, text = await page(port, "/metrics")
    assert 'raytide_writes_total{kind="Pod",result="done",verb="create"} 3.0' in text
    assert f'kuberay_cluster_provisioned_duration_seconds{{name="demo",namespace="{namespace}"' in text


@pytest.mark.rule("RC §6.3")
async def test_only_the_configured_namespaces_are_watched(cluster, operators, tmp_path, namespace):
    a, b, c = (f"{namespace}-{letter}" for letter in "abc")
    await start(operators, cluster.write_kubeconfig(tmp_path / "kubeconfig"), "--watch-namespace", f"{a},{b}")
    for where in (a, b, c):
        cluster.apply(raycluster(namespace=where))
    await until("a and b have their pods", lambda: len(cluster.names(a)) == len(cluster.names(b)) == 3)
    await holds_while("c has none", lambda: not cluster.pods(c), has_reconciled(cluster, a))


async def more_events(port, than):
    """Wait until kopf has rung more often than that; returns how often."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while asyncio.get_running_loop().time() < deadline:
        _, text = await page(port, "/metrics")
        found = re.search(r'^raytide_kopf_events_total\{resource="rayclusters"\} (\S+)$', text, re.MULTILINE)
        events = float(found[1]) if found else 0.0
        if events > than:
            return events
        await asyncio.sleep(0.05)
    raise AssertionError(f"kopf rang {events:.0f} times, not more than {than:.0f}")


@pytest.mark.rule("D1", "D11")
async def test_kopf_enqueues_from_its_thread(cluster, operators, tmp_path, namespace):
    port = free_port()
    operator = await Operator(metrics=f"127.0.0.1:{port}").start(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
    operators.append(operator)
    cluster.apply(raycluster(namespace=namespace))
    await until("pods exist", lambda: len(cluster.names(namespace)) == 3)

    events = await more_events(port, than=0)
    cluster.scale(namespace, "demo", 3)
    await more_events(port, than=events)
    assert operator.log.count("kopf") == 0
