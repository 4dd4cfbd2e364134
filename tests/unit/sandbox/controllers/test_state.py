"""The state directory: the running sandbox is identified by a lock, a record and process start times."""

import dataclasses
import os
import ssl
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from raytide_sandbox.certificates import make_certificates
from raytide_sandbox.kubeconfig import build_kubeconfig, write_private
from raytide_sandbox.state_dir import AlreadyRunningError, Record, StateDirectory, start_ticks, uptime_s


@pytest.fixture
def state(tmp_path) -> StateDirectory:
    found = StateDirectory(tmp_path / "sandbox")
    found.create()
    return found


def record(pid: int, ticks: int) -> Record:
    return Record(
        pid=pid, start_ticks=ticks, version="0", server="https://127.0.0.1:1", isolation="ns", isolation_reason="tried",
        nodes=3, scratch="/nonexistent/scratch",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        pytest.param(
            {"RAYTIDE_SANDBOX_DIR": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b", id="the variable takes precedence"
        ),
        pytest.param({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/raytide/sandbox", id="then the cache of the desktop"),
        pytest.param({"HOME": "/h"}, "/h/.cache/raytide/sandbox", id="then the usual cache"),
    ],
)
def test_the_default_state_directory(environ, path):
    assert StateDirectory.default(environ).path == Path(path)


def test_one_process_can_claim_the_directory_and_its_end_releases_the_claim(state):
    code = "import sys; from pathlib import Path; from raytide_sandbox.state_dir import StateDirectory as S\n"
    code += f"c = S(Path({str(state.path)!r})).claim(); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        assert state.is_claimed()
        with pytest.raises(AlreadyRunningError):
            state.claim()
        other.kill()
        other.wait()
        assert not state.is_claimed()
    state.claim().release()


def test_a_place_that_does_not_exist_is_not_claimed(tmp_path):
    assert not StateDirectory(tmp_path / "nowhere").is_claimed()


def test_a_record_is_read_back_and_an_incomplete_one_is_none(state):
    assert state.read_record() is None
    state.write_record(record(1, 2))
    assert state.read_record() == record(1, 2)
    state.record.write_text('{"pid": 1')
    assert state.read_record() is None
    state.record.write_text('{"pid": 1}')
    assert state.read_record() is None


def test_a_process_is_known_by_its_number_and_its_start():
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    assert record(os.getpid(), ticks).is_alive
    assert not record(os.getpid(), ticks + 1).is_alive
    assert 0 <= uptime_s(record(os.getpid(), ticks)) < 3600


def test_a_dead_child_that_was_not_waited_for_is_not_alive():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert start_ticks(child.pid) is None
    child.wait()


def test_the_scratch_directory_is_accessible_to_its_owner_only(state, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert stat.S_IMODE(state.create_scratch().stat().st_mode) == 0o700
    state.clear()
    (tmp_path / "target").mkdir()
    state.scratch.symlink_to(tmp_path / "target")
    with pytest.raises(PermissionError, match="is owned by another user"):
        state.create_scratch()
    state.clear()
    assert (tmp_path / "target").exists()


def test_the_scratch_directory_in_the_record_is_removed(state, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    state.write_record(dataclasses.replace(record(1, 2), scratch=str(tmp_path / "elsewhere")))
    state.clear()
    assert not (tmp_path / "elsewhere").exists()


def test_clearing_leaves_the_log_and_nothing_that_is_no_longer_true(state):
    state.scratch.mkdir(mode=0o700)
    (state.scratch / "pod").touch()
    for file in (state.record, state.kubeconfig, state.log):
        file.touch()
    state.clear()
    assert sorted(entry.name for entry in state.path.iterdir()) == ["sandbox.log"]
    assert not state.scratch.exists()


def test_scratch_is_in_the_state_directory_if_its_path_is_short():
    assert StateDirectory(Path("/home/me/.cache/raytide/sandbox")).scratch.parent.name == "sandbox"


def test_scratch_is_short_enough_for_socket_paths(tmp_path):
    deep = StateDirectory(tmp_path / ("x" * 200))
    assert len(str(deep.scratch)) <= 30
    assert deep.scratch != StateDirectory(tmp_path / "y").scratch


def test_the_certificate_is_valid_for_every_requested_name(tmp_path):
    made = make_certificates(datetime.now(UTC), ["127.0.0.1", "localhost", "kubernetes.default.svc"])
    certificate = x509.load_pem_x509_certificate(made.server)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "kubernetes.default.svc"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(made.authority))
    ssl.create_default_context(cadata=made.authority.decode())
    (tmp_path / "pem").write_bytes(made.server + made.server_key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "pem")


def test_the_kubeconfig_is_complete_and_private(tmp_path):
    path = tmp_path / "kubeconfig"
    write_private(path, build_kubeconfig(server="https://127.0.0.1:1", authority=b"PEM", token="secret"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = yaml.safe_load(path.read_text())
    context = config["contexts"][0]["context"]
    assert config["current-context"] == config["contexts"][0]["name"]
    assert context["cluster"] == config["clusters"][0]["name"]
    assert config["users"][0] == {"name": context["user"], "user": {"token": "secret"}}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["kubeconfig"]
