"""The master persists its state before it replies over HTTP."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.deadlines import PATIENCE


class Asked:
    """A running master."""

    def __init__(self, module: ModuleType, state: Path) -> None:
        self.master = module.Master(module.TaskQueue(2, 2), state)
        self._server = module.serve(self.master, "127.0.0.1", 0)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def __call__(self, what: str, **asked: Any) -> Any:
        url = f"http://127.0.0.1:{self._server.server_port}/{what}"
        body = json.dumps(asked).encode() if asked else None
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=5 * PATIENCE) as response:
            return json.load(response)

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def ask(master: ModuleType, tmp_path: Path) -> Iterator[Asked]:
    running = Asked(master, tmp_path / "tasks.json")
    yield running
    running.end()


def test_the_master_assigns_tasks_and_counts_finished_ones(ask: Asked) -> None:
    assert ask("next", trainer="a")["task"] == 0
    assert ask("done", trainer="a", task=0, loss=0.5, **{"pass": 0}) == {"counts": True}
    assert ask("next", trainer="b")["task"] == 1
    assert ask("return", trainer="b", task=1, **{"pass": 0}) == {"counts": True}
    state = ask("status")
    assert state["done"] == [{"pass": 0, "task": 0, "trainer": "a", "loss": 0.5}]
    assert (state["todo"], state["pending"]) == ([1], {})


def test_a_restarted_master_restores_its_state(ask: Asked, master: ModuleType, tmp_path: Path) -> None:
    ask("next", trainer="a")
    ask("done", trainer="a", task=0, loss=0.5, **{"pass": 0})
    ask("next", trainer="b")
    again = Asked(master, tmp_path / "tasks.json")
    try:
        assert again.master.was_restored
        assert again("status") == ask("status")
        assert "wait_s" in again("next", trainer="c")
    finally:
        again.end()


def test_the_state_is_on_disk_before_the_reply(ask: Asked, tmp_path: Path) -> None:
    ask("next", trainer="a")
    assert json.loads((tmp_path / "tasks.json").read_text())["pending"] == {"0": "a"}
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.json"]


def test_the_current_pass_can_be_made_the_last(ask: Asked) -> None:
    assert ask("enough", trainer="me") == {"pass": 0}
    for task in range(2):
        ask("done", trainer="a", task=task, loss=0.5, **{"pass": 0})
    assert ask("next", trainer="a")["finished"]


@pytest.mark.parametrize(
    ("what", "asked"),
    [
        pytest.param("dance", {"trainer": "a"}, id="an unknown request"),
        pytest.param("next", {"trainers": "a"}, id="an empty name"),
        pytest.param("done", {"trainer": "a", "task": "x", "pass": 0, "loss": 1}, id="a task that is no number"),
        pytest.param("done", {"trainer": "a", "task": 0, "pass": 0}, id="no loss"),
    ],
)
def test_invalid_requests_are_rejected_and_change_nothing(ask: Asked, what: str, asked: dict[str, Any]) -> None:
    before = ask("status")
    with pytest.raises(urllib.error.HTTPError) as rejected:
        ask(what, **asked)
    rejected.value.close()
    assert rejected.value.code == 400
    assert ask("status") == before


def test_no_object_at_all_is_rejected(ask: Asked) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{ask._server.server_port}/next", b"[1")
    with pytest.raises(urllib.error.HTTPError) as rejected:
        urllib.request.urlopen(request, timeout=5 * PATIENCE)
    rejected.value.close()
    assert rejected.value.code == 400
