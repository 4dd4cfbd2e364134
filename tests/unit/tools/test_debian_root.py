"""Debian packages in the cache folder: unpacked once, completely or not at all, and never into the machine."""

import shutil

import pytest

import debian_root
from debian_packages import DebianError

APT = """#!/bin/sh
echo "$*" >>"$LOG"
[ -z "$REFUSAL" ] || { echo "$REFUSAL" >&2; exit 100; }
case "$*" in
*--print-uris*) echo "'http://debian/a_1_all.deb' a_1_all.deb 1 SHA256:00" ;;
*download*) touch a_1_all.deb ;;
esac
"""
UNPACK = """#!/bin/sh
mkdir -p "$FILES/bin" && echo unpacked >"$FILES/bin/a" && tar -C "$FILES" -cf - bin
"""


@pytest.fixture
def environ(tmp_path, monkeypatch):
    """A PATH with a small apt-get and dpkg-deb, and a cache folder of the test's own."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("apt-get", APT), ("dpkg-deb", UNPACK)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for name in ("sh", "tar", "touch", "mkdir"):
        (programs / name).symlink_to(shutil.which(name))
    found = {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name, value in {**found, "LOG": tmp_path / "log", "FILES": tmp_path / "files", "REFUSAL": ""}.items():
        monkeypatch.setenv(name, str(value))
    return found


def test_packages_are_unpacked_once(environ, tmp_path):
    root = debian_root.provide(["b", "a"], environ)
    assert (root / "usr" / "bin" / "a").read_text() == "unpacked\n"
    assert (root / "bin").is_symlink(), "packages name a program by either path"
    assert all((root / folder).is_dir() for folder in ("proc", "run", "sys", "tmp"))
    calls = (tmp_path / "log").read_text()
    assert debian_root.provide(["a", "b"], environ) == root
    assert (tmp_path / "log").read_text() == calls
    assert sorted(path.name for path in root.parent.iterdir()) == sorted([root.name, "lock"])


def test_apt_keeps_its_files_in_the_cache_folder(environ, tmp_path):
    debian_root.provide(["a"], environ)
    for line in (tmp_path / "log").read_text().splitlines():
        assert f"Dir::State::lists={tmp_path / 'cache'}" in line
        assert f"Dir::Cache={tmp_path / 'cache'}" in line


def test_other_packages_and_other_releases_have_another_folder():
    found = [
        debian_root.digest(names, release)
        for names in (["a"], ["a", "b"])
        for release in ("debian-bookworm-x86_64", "debian-trixie-x86_64", "debian-bookworm-aarch64")
    ]
    assert len(set(found)) == 6


def test_a_failed_download_leaves_nothing_and_has_apts_reason(environ, monkeypatch, tmp_path):
    monkeypatch.setenv("REFUSAL", "E: No space left on device")
    with pytest.raises(DebianError, match="apt-get update failed: E: No space left on device"):
        debian_root.provide(["a"], environ)
    assert [path.name for path in (tmp_path / "cache" / "raytide" / "debian").iterdir()] == ["lock"]


def test_without_debian_one_line_says_so(environ, tmp_path):
    (tmp_path / "bin" / "apt-get").unlink()
    with pytest.raises(DebianError, match="there is no apt-get on PATH"):
        debian_root.provide(["a"], environ)
