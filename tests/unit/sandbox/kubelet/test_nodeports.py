"""The targets of a NodePort."""

import asyncio
import socket

import pytest

from raytide_sandbox.streaming.nodeports import NodePort, NodePorts, PodPort, ready_pods, wanted_node_ports
from support.ports import free_port


def service(node_port: int | None, *, name="dash", port_name="", protocol="TCP"):
    port = {"name": port_name, "port": 80, "protocol": protocol, **({"nodePort": node_port} if node_port else {})}
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"ports": [port]}}


def endpoints(*pods: str, port=8265, name="dash", port_name=""):
    addresses = [{"ip": "10.0.0.1", "targetRef": {"kind": "Pod", "name": pod}} for pod in pods]
    subset = {"addresses": addresses, "ports": [{"name": port_name, "port": port}]}
    return {"metadata": {"namespace": "default", "name": name}, "subsets": [subset]}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param(service(30001), {30001: NodePort("default", "dash", "")}, id="a node port is served"),
        pytest.param(service(None), {}, id="a service without one is not"),
        pytest.param(service(30001, protocol="UDP"), {}, id="UDP is not"),
    ],
)
def test_wanted(subject, expected):
    assert wanted_node_ports([subject]) == expected


def test_only_pods_of_that_service_and_that_port_name_serve():
    found = ready_pods(
        [endpoints("a", "b"), endpoints("c", name="other"), endpoints("d", port_name="metrics")],
        NodePort("default", "dash", ""),
    )
    assert found == [PodPort("default", "a", 8265), PodPort("default", "b", 8265)]


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def test_connections_are_balanced_and_the_listener_is_closed_with_its_service():
    async def greet(_reader, writer):
        writer.write(b"hello")
        writer.close()

    pod = await asyncio.start_server(greet, "127.0.0.1", 0)
    reached = []

    async def connect(to: PodPort) -> socket.socket:
        reached.append(to.pod)
        connection = socket.create_connection(pod.sockets[0].getsockname())
        connection.setblocking(False)
        return connection

    ports, port = NodePorts(connect), free_port()
    await ports.update([service(port)], [endpoints("a", "b")])
    assert [await ask(port), await ask(port)] == [b"hello", b"hello"]
    assert sorted(reached) == ["a", "b"]
    await ports.update([service(port)], [])
    assert await ask(port) == b"", "no ready pod: the connection just ends"
    await ports.update([], [])
    with pytest.raises(ConnectionRefusedError):
        await ask(port)
    await ports.close()
    pod.close()
    await pod.wait_closed()


async def test_a_node_port_in_use_is_logged(caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = NodePorts(lambda to: asyncio.sleep(0))
        await ports.update([service(taken.getsockname()[1])], [])
        await ports.close()
    assert "cannot be served" in caplog.text
