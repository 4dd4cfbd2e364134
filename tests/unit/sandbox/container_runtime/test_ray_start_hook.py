"""Arguments added to `ray start` where pods share one network."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from raytide_sandbox.container_runtime.ray_start_hook import on_start


@pytest.fixture
def constants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stands in for Ray's, which take a second to import."""
    module = ModuleType("ray._private.ray_constants")
    module.DEFAULT_PORT = 6379  # type: ignore[attr-defined]
    module.ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]
    services = ModuleType("ray._private.services")
    services.get_node_ip_address = lambda _address=None: "192.0.2.2"  # type: ignore[attr-defined]
    private = ModuleType("ray._private")
    private.ray_constants, private.services = module, services  # type: ignore[attr-defined]
    stand_ins = {
        "ray": ModuleType("ray"),
        "ray._private": private,
        module.__name__: module,
        services.__name__: services,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setitem(sys.modules, name, stand_in)
    for name, text in {"RAYTIDE_POD_IP": "127.88.0.3", "RAYTIDE_POD_INDEX": "3", "RAY_TMPDIR": "/t"}.items():
        monkeypatch.setenv(name, text)
    return module


def start(*, head: bool, object_store_memory: int | None = None) -> SimpleNamespace:
    params = SimpleNamespace(
        metrics_export_port=8080,
        dashboard_host="0.0.0.0",
        dashboard_port=8265,
        ray_client_server_port=10001,
        object_store_memory=object_store_memory,
    )
    on_start(params, head)
    return params


def test_a_worker_has_its_name_directory_and_agent_port(constants: ModuleType) -> None:
    params = start(head=False)
    assert params.node_name == "127.88.0.3"
    assert params.temp_dir == "/t/ray"
    assert params.dashboard_agent_listen_port == 52395
    assert params.metrics_export_port is None
    assert constants.DEFAULT_PORT == 6379
    assert params.dashboard_port == 8265


@pytest.mark.rule("FD:SEC-F2")
@pytest.mark.parametrize("head", [True, False])
def test_a_node_has_the_only_address_with_which_ray_listens_on_loopback_alone(
    head: bool,  # noqa: FBT001 - Ray's word
    constants: ModuleType,
) -> None:
    params = start(head=head)
    assert params.node_ip_address == "127.0.0.1"
    assert params.dashboard_host == ("127.0.0.1" if head else "0.0.0.0")
    assert sys.modules["ray._private.services"].get_node_ip_address() == "127.0.0.1"
    assert constants.ENABLE_RAY_CLUSTER


def test_a_head_moves_every_fixed_port(constants: ModuleType) -> None:
    params = start(head=True)
    assert (constants.DEFAULT_PORT, params.dashboard_port, params.ray_client_server_port) == (6409, 8295, 21031)


@pytest.mark.usefixtures("constants")
@pytest.mark.parametrize(
    ("limit", "asked", "expected"),
    [
        pytest.param("2000000000", None, 600_000_000, id="three tenths of the pod's memory"),
        pytest.param("1000000", None, 80_000_000, id="but no less than Ray takes"),
        pytest.param("2000000000", 123_000_000, 123_000_000, id="the user's value is kept"),
        pytest.param("", None, None, id="without a limit Ray decides"),
    ],
)
def test_object_store(monkeypatch: pytest.MonkeyPatch, limit: str, asked: int | None, expected: int | None) -> None:
    monkeypatch.setenv("RAYTIDE_MEMORY_BYTES", limit)
    assert start(head=False, object_store_memory=asked).object_store_memory == expected
