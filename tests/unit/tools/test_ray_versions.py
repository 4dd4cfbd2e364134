"""Where other versions of Ray are kept."""

from pathlib import Path

import pytest

import ray_versions


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        pytest.param({"HOME": "/h"}, "/h/.cache/raytide/ray", id="in the home folder"),
        pytest.param({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/raytide/ray", id="where the user wants caches"),
        pytest.param({"HOME": "/h", "XDG_CACHE_HOME": ""}, "/h/.cache/raytide/ray", id="an empty wish is none"),
    ],
)
def test_versions_are_kept_in_the_users_cache_folder(environ: dict[str, str], folder: str) -> None:
    assert ray_versions.ray_cache(environ) == Path(folder)


def test_a_version_that_is_complete_is_not_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def run(command, **_) -> None:
        calls.append(command[1])
        (tmp_path / "9.9.9").mkdir(exist_ok=True)

    monkeypatch.setattr(ray_versions.subprocess, "run", run)
    for _ in range(2):
        assert ray_versions.provide("9.9.9", tmp_path) == tmp_path / "9.9.9" / "bin" / "python"
    assert calls == ["venv", "pip"]
