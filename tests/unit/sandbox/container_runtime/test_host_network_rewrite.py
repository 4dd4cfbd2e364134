"""Rewritten arguments of a pod that shares the host's network."""

import pytest

from raytide_sandbox.container_runtime import host_network_rewrite

NAMES = {"head.default.svc.cluster.local": ("127.88.0.2",), "db.x.svc.cluster.local": ("10.0.0.9",)}


def localised(text: str, *, paths: tuple[tuple[str, str], ...] = ()) -> str:
    return host_network_rewrite.localise(
        text,
        ip="127.88.0.3",
        index=3,
        lookup=lambda name: NAMES.get(name, ()),
        index_by_ip={"127.88.0.2": 2, "127.88.0.3": 3},
        paths=paths,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "ray start --address=head.default.svc.cluster.local:6379 --block",
            "ray start --address=127.0.0.1:6399 --block",
            id="a service's name and Ray's port become where the Ray of its pod listens",
        ),
        pytest.param("head.default.svc:10001", "127.0.0.1:21021", id="the short form of a full name is known"),
        pytest.param("head.default.svc.cluster.local", "127.88.0.2", id="a name without a port"),
        pytest.param("head.default.svc:8000", "127.88.0.2:8000", id="another port than Ray's stays"),
        pytest.param("db.x.svc:6379", "10.0.0.9:6379", id="what is no pod keeps its port"),
        pytest.param("late.default.svc:6379", "late.default.svc:6379", id="a name without an address yet stays"),
        pytest.param("head.default.svc.example.com", "head.default.svc.example.com", id="a longer name is another"),
        pytest.param(
            "wget http://localhost:52365/api", "wget http://127.0.0.1:52395/api", id="localhost with a port of Ray"
        ),
        pytest.param("RAY=127.0.0.1:6379", "RAY=127.0.0.1:6409", id="127.0.0.1 with a port of Ray"),
        pytest.param("localhost:8000", "127.88.0.3:8000", id="localhost with another port is the pod"),
        pytest.param("127.0.0.1:8000", "127.88.0.3:8000", id="127.0.0.1 with another port is the pod"),
        pytest.param("ping localhost", "ping localhost", id="localhost without a port stays"),
        pytest.param("not-localhost:80 x.127.0.0.1:80", "not-localhost:80 x.127.0.0.1:80", id="parts of words stay"),
        pytest.param("ray start --head --port=6379", "ray start --head --port=6409", id="an explicit GCS port moves"),
        pytest.param("serve --port=63790", "serve --port=63790", id="a longer number is another"),
    ],
)
def test_text(text: str, expected: str) -> None:
    assert localised(text) == expected


def test_whole_paths_of_volumes_are_replaced_by_their_paths_on_the_host() -> None:
    paths = (("/data", "/s/v1"), ("/data/deep", "/s/v2"))
    assert localised("cp /data/x /data/deep/y /database /x/data", paths=paths) == "cp /s/v1/x /s/v2/y /database /x/data"


def test_moved_ports_of_all_pods_are_different_and_outside_the_workers_range() -> None:
    moved = [
        host_network_rewrite.moved_port(port, index)
        for port in host_network_rewrite.RAY_PORTS
        for index in range(2, host_network_rewrite.MAX_PODS + 1)
    ]
    moved += [host_network_rewrite.reservation_port(index) for index in range(2, host_network_rewrite.MAX_PODS + 1)]
    assert len(set(moved)) == len(moved)
    assert not [port for port in moved if 10002 <= port <= 19999 or port > 65535]


def test_the_services_a_text_names_are_found_in_full():
    text = "ray health-check --address a.default.svc:6379 || ping b-1.team.svc.cluster.local; c.svc.example.com"
    assert host_network_rewrite.service_names(text) == {"a.default.svc.cluster.local", "b-1.team.svc.cluster.local"}
