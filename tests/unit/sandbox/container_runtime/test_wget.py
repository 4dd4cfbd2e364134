"""The stand-in for wget supports the options of KubeRay's probes."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from raytide_sandbox.container_runtime import images
from support.deadlines import PATIENCE


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ok" else 503)
        self.end_headers()
        self.wfile.write(b"success")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def wget(*words: str, program: str) -> tuple[int, str]:
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=20 * PATIENCE)
    return done.returncode, done.stdout


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(images.shutil, "which", lambda *_, **__: None)
    images.write_stand_ins(tmp_path)
    return str(tmp_path / "wget")


def test_a_good_answer_is_printed(port: int, program: str) -> None:
    output = wget("--tries", "1", "-T", "2", "-q", "-O-", f"http://127.0.0.1:{port}/ok", program=program)
    assert output == (0, "success")


def test_an_error_answer_fails_and_prints_nothing(port: int, program: str) -> None:
    output = wget("--tries", "1", "-T", "2", "-q", "-O-", f"http://127.0.0.1:{port}/no", program=program)
    assert output == (8, "")


def test_no_answer_fails(program: str) -> None:
    assert wget("--tries", "1", "-T", "2", "-q", "-O-", "http://127.0.0.1:1/", program=program) == (4, "")


def test_it_needs_only_the_standard_library() -> None:
    source = Path(images.__file__).with_name("wget.py")
    done = subprocess.run(
        [sys.executable, "-IS", str(source), "--help"], capture_output=True, check=False, timeout=20 * PATIENCE
    )
    assert done.returncode == 0
