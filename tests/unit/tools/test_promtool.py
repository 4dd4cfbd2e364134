"""promtool from Debian's package: unpacked once into the cache folder, and a check that says so where there is none."""

import shutil

import pytest

import monitoring
import promtool
from debian_packages import DebianError

APT = """#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
*--print-uris*) for name in libc6 prometheus; do echo "'http://debian/${name}_1_all.deb' ${name}_1_all.deb 1 SHA256:00"; done ;;
*download*) touch prometheus_1_all.deb ;;
esac
"""
UNPACK = """#!/bin/sh
mkdir -p "$3/usr/bin" && echo "$2" >"$3/usr/bin/promtool"
"""


@pytest.fixture
def environ(tmp_path, monkeypatch):
    """A PATH with a small apt-get and dpkg-deb, and a cache folder of the test's own."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("apt-get", APT), ("dpkg-deb", UNPACK)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for name in ("sh", "touch", "mkdir"):
        (programs / name).symlink_to(shutil.which(name))
    found = {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name, value in {**found, "LOG": tmp_path / "log"}.items():
        monkeypatch.setenv(name, str(value))
    return found


def test_it_is_unpacked_once_without_its_dependencies(environ, tmp_path):
    program = promtool.provide(environ)
    assert program.name == "promtool"
    assert program.read_text().endswith("prometheus_1_all.deb\n")
    calls = (tmp_path / "log").read_text()
    assert calls.splitlines()[-1].endswith("download prometheus")
    assert promtool.provide(environ) == program
    assert (tmp_path / "log").read_text() == calls
    assert sorted(path.name for path in (tmp_path / "cache" / "raytide" / "promtool").iterdir()) == sorted(
        [program.parent.name, "lock"]
    )


def test_one_on_path_comes_first(environ, tmp_path):
    installed = tmp_path / "bin" / "promtool"
    installed.write_text("")
    installed.chmod(0o755)
    assert promtool.provide(environ) == installed


@pytest.mark.parametrize(("args", "code"), [([], 0), (["--require"], 1)], ids=["by itself", "required"])
def test_without_promtool_the_check_says_so_in_one_line(monkeypatch, capsys, args, code):
    def missing():
        raise DebianError("there is no apt-get on PATH, which Debian and Ubuntu have")

    monkeypatch.setattr(promtool, "provide", missing)
    monkeypatch.setattr("sys.argv", ["monitoring.py", *args])
    assert monitoring.main() == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("alerts and dashboards: not run (there is no apt-get on PATH, which Debian and Ubuntu have;")


@pytest.mark.parametrize(("fails", "code"), [("nothing", 0), ("check", 1), ("test", 1)])
def test_all_calls_are_made_and_each_may_fail(monkeypatch, tmp_path, fails, code):
    program = tmp_path / "promtool"
    program.write_text(f'#!/bin/sh\necho "$1 $2" >>{tmp_path}/calls\n[ "$1" != {fails} ]\n')
    program.chmod(0o755)
    monkeypatch.setattr(promtool, "provide", lambda: program)
    monkeypatch.setattr("sys.argv", ["monitoring.py"])
    assert monitoring.main() == code
    assert (tmp_path / "calls").read_text().splitlines() == ["check rules", "check rules", "test rules"]
