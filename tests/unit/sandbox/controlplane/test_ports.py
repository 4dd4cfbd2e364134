"""The ports of a control plane if some are in use."""

import json
import socket

import pytest

from raytide_sandbox.controlplane.ports import HOST, LIMIT, LOWEST, Ports, is_free, next_free


@pytest.fixture
def taken():
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_port_in_use_is_not_free(taken):
    assert not is_free(taken)


def test_a_port_is_free_again_right_after_its_server_ended(taken):
    with socket.socket() as gone:
        gone.bind((HOST, 0))
        port = gone.getsockname()[1]
    assert is_free(port)


@pytest.mark.parametrize(
    ("asked", "busy", "got"),
    [
        pytest.param(6443, set(), 6443, id="the requested port, if it is free"),
        pytest.param(6443, {6443}, 6444, id="the next one, if it is taken"),
        pytest.param(6443, {6443, 6444, 6446}, 6445, id="the first free one after it"),
    ],
)
def test_next_free(asked, busy, got):
    assert next_free(asked, lambda port: port not in busy) == got


def test_when_a_port_is_taken_the_next_is_chosen(tmp_path, taken):
    chosen = Ports(tmp_path / "ports.json", wanted={"api": taken}).choose("api")
    assert chosen > taken
    assert is_free(chosen)


def test_default_ports_are_outside_the_ephemeral_range(tmp_path):
    ports = Ports(tmp_path / "ports.json", wanted={})
    chosen = {ports.choose(name) for name in ("a", "b", "c", "d", "e")}
    assert len(chosen) == 5
    assert all(LOWEST <= port < LIMIT + 200 for port in chosen)


def test_a_restart_has_the_same_ports(tmp_path):
    before = Ports(tmp_path / "ports.json", wanted={})
    chosen = {name: before.choose(name) for name in ("api", "etcd")}
    again = Ports(tmp_path / "ports.json", wanted={})
    assert {name: again.choose(name) for name in chosen} == chosen


def test_a_requested_port_takes_precedence_over_the_stored_one(tmp_path):
    (tmp_path / "ports.json").write_text(json.dumps({"api": 20001}))
    assert Ports(tmp_path / "ports.json", wanted={"api": 20123})["api"] == 20123


def test_two_names_never_share_a_port(tmp_path):
    (tmp_path / "ports.json").write_text(json.dumps({"api": 20001, "etcd": 20001}))
    ports = Ports(tmp_path / "ports.json", wanted={})
    assert ports.choose("api") != ports["etcd"]


def test_a_port_that_was_lost_in_a_race_is_not_chosen_again(tmp_path):
    ports = Ports(tmp_path / "ports.json", wanted={})
    lost = ports.choose("api")
    ports.give_up("api")
    assert ports.choose("api") > lost


@pytest.mark.parametrize("text", ["", "[]", '{"api": "x"}', '{"api": 2000'], ids=["empty", "a list", "a word", "half"])
def test_an_unreadable_port_file_is_ignored(tmp_path, text):
    (tmp_path / "ports.json").write_text(text)
    assert LOWEST <= Ports(tmp_path / "ports.json", wanted={}).choose("api") < LIMIT + 200
