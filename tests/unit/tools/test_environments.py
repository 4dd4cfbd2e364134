"""Environments of programs whose dependencies conflict with Raytide's."""

from pathlib import Path

import pytest

import build_cache
import environments
import paddle_env


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        pytest.param({"HOME": "/h"}, "/h/.cache/raytide/ray", id="in the home folder"),
        pytest.param({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/raytide/ray", id="where the user wants caches"),
        pytest.param({"HOME": "/h", "XDG_CACHE_HOME": ""}, "/h/.cache/raytide/ray", id="an empty wish is none"),
    ],
)
def test_they_are_in_the_users_cache_folder(environ: dict[str, str], folder: str) -> None:
    assert build_cache.cache_folder("ray", environ) == Path(folder)


def test_a_complete_environment_is_not_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def run(command, **_) -> None:
        calls.append([str(word) for word in command[1:]])
        (tmp_path / "9.9.9").mkdir(exist_ok=True)

    monkeypatch.setattr(environments.subprocess, "run", run)
    for _ in range(2):
        assert environments.provide(tmp_path / "9.9.9", "ray==9.9.9") == tmp_path / "9.9.9" / "bin" / "python"
    assert [call[0] for call in calls] == ["venv", "pip"]
    assert calls[1][-1] == "ray==9.9.9"


@pytest.mark.parametrize(
    ("version", "machine"),
    [
        pytest.param((3, 12), ("Linux", "x86_64"), id="another Python"),
        pytest.param((3, 11), ("Linux", "aarch64"), id="another processor"),
        pytest.param((3, 11), ("Darwin", "x86_64"), id="another system"),
    ],
)
def test_paddle_reports_platforms_on_which_it_does_not_run(version: tuple[int, int], machine: tuple[str, str]) -> None:
    with pytest.raises(paddle_env.PaddleMissingError, match=r"needs Python 3\.11 on Linux x86_64"):
        paddle_env.check(version, machine)


def test_paddle_runs_on_the_one_python_it_is_locked_for() -> None:
    paddle_env.check((3, 11), ("Linux", "x86_64"))


@pytest.mark.parametrize(("args", "code"), [([], 0), (["--require"], 1)], ids=["by itself", "required"])
def test_paddle_is_no_failure_unless_it_is_required(
    args: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Path:
        raise paddle_env.PaddleMissingError("not here")

    monkeypatch.setattr(paddle_env, "provide_paddle", missing)
    monkeypatch.setattr("sys.argv", ["paddle_env.py", *args])
    assert paddle_env.main() == code
    assert "not run: not here" in capsys.readouterr().err


def test_another_lock_is_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = paddle_env.folder()
    changed = tmp_path / "paddle.txt"
    changed.write_text("something else")
    monkeypatch.setattr(paddle_env, "LOCK", changed)
    assert paddle_env.folder() != before
