"""What `make image` reuses, builds, says and leaves. A small builder stands in for Docker."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import debian_packages
import image
from image import ImageError, Wanted, main, provide
from image_builders import BuilderMissingError, BuildError

SOURCES = {
    "Dockerfile": "ARG PYTHON_IMAGE=docker.io/python:3@sha256:aa\n",
    ".dockerignore": "*\n!README.md\n!crds\n",
    "README.md": "read",
    "crds/one.yaml": "one",
    "tools/builders/image.py": "",
    "tools/checks/image_starts.py": "",
    "unrelated.py": "",
}


class World:
    """A repository, a cache folder and a builder of a test's own."""

    def __init__(self, folder, monkeypatch):
        self.root, self.cache = folder / "root", folder / "cache" / "raytide" / "image"
        self.monkeypatch = monkeypatch
        self.made = []
        self.error = None
        for name, text in SOURCES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        monkeypatch.setattr(image, "ROOT", self.root)
        monkeypatch.setattr(image, "make", self._make)
        monkeypatch.setattr(image, "find_builder", lambda wanted: wanted or "docker")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def _make(self, wanted, _cache, work, builder):
        self.made.append((wanted.base, builder))
        (work / "storage").mkdir()
        (work / image.ARCHIVE).write_text(f"archive {len(self.made)}")
        if self.error:
            raise self.error
        (work / image.REPORT).write_text("size: 1 MB\n")

    def in_cache(self):
        return {path.name for path in self.cache.iterdir()}


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def test_a_second_call_builds_nothing(world, capsys):
    assert main_of() == 0
    assert main_of() == 0
    assert len(world.made) == 1
    lines = capsys.readouterr().out.splitlines()
    built = Path(lines[-1])
    assert lines[0] == "size: 1 MB"
    assert built.read_text() == "archive 1"
    assert (world.cache / "raytide.tar").read_text() == "archive 1"
    assert (world.cache / "current").read_text() == f"{built}\n"


def main_of(*arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["image.py", *arguments])
        return main()


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "unrelated.py"])
def test_every_source_counts(world, name):
    before = provide(Wanted())
    with (world.root / name).open("a") as file:
        file.write("\n")
    after = provide(Wanted())
    assert (before.read_text(), after.read_text()) == ("archive 1", "archive 2")
    assert (world.cache / "raytide.tar").resolve() == after


def test_choices_count_and_other_files_do_not(world):
    provide(Wanted())
    (world.root / "unrelated.py").write_text("changed")
    (world.root / "crds" / "__pycache__").mkdir()
    (world.root / "crds" / "__pycache__" / "x.pyc").write_text("bytecode")
    provide(Wanted())
    provide(Wanted(base="pinned"))
    provide(Wanted(builder="podman"))
    assert world.made == [("", "docker"), ("pinned", "docker"), ("", "podman")]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        pytest.param(BuildError("failed: docker build"), 1, "failed: docker build\n", id="the build"),
        pytest.param(ImageError("failed its checks"), 1, "failed its checks\n", id="a check"),
        pytest.param(debian_packages.DebianError("apt-get update failed"), 2, "apt-get update failed\n", id="apt-get"),
        pytest.param(BuilderMissingError("no image can be built"), 2, "no image can be built\n", id="no builder"),
    ],
)
def test_a_failure_leaves_nothing_and_the_earlier_result(world, capsys, error, code, message):
    earlier = provide(Wanted())
    (world.root / "README.md").write_text("changed")
    world.error = error
    before = world.in_cache()
    assert main_of() == code
    assert capsys.readouterr().err == message
    assert world.in_cache() == before
    assert (world.cache / "raytide.tar").resolve() == earlier


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "no space"),
        OSError(errno.EDQUOT, "quota"),
        BuildError("failed: buildah push\nError: write /x: no space left on device"),
    ],
    ids=["while writing", "of a quota", "in a builder"],
)
def test_a_full_disk_is_one_line(world, capsys, error):
    world.error = error
    assert main_of() == 2
    message = f"no space in {world.cache}: the disk is full, 1.5 GB are needed; free some, or set XDG_CACHE_HOME\n"
    assert capsys.readouterr().err == message
    assert world.in_cache() == {"lock"}


def test_too_little_space_is_said_before_the_build(world, capsys, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=400_000_000))
    assert main_of() == 2
    assert "0.4 GB are free, 1.5 GB are needed" in capsys.readouterr().err
    assert world.made == []


def test_another_error_is_no_message(world):
    world.error = OSError(errno.EACCES, "denied")
    with pytest.raises(OSError, match="denied"):
        main_of()


def test_what_a_killed_build_left_is_removed(world):
    left = world.cache / ".building-killed" / "storage"
    left.mkdir(parents=True)
    provide(Wanted())
    assert not left.parent.exists()


def test_only_the_results_used_last_are_kept(world):
    built = []
    for number in range(image.KEPT + 2):
        (world.root / "README.md").write_text(str(number))
        built.append(provide(Wanted()))
        os.utime(built[-1].parent, (number, number))
    assert [path.exists() for path in built] == [False, False, True, True, True]


# --- base images ---------------------------------------------------------------------------------------------------------


class FakeBuilder:
    """Pulls with this error."""

    name = "docker"

    def __init__(self, error):
        self.error, self.loaded, self.built = error, [], []

    def pull(self, _reference):
        return self.error

    def load(self, archive):
        self.loaded.append(archive.read_text())

    def build(self, context, reference, arguments):
        self.built.append((sorted(path.name for path in context.iterdir()), reference, arguments))


@pytest.fixture
def debian(world, monkeypatch):
    """A Debian, or none."""
    world.cache.mkdir(parents=True)
    monkeypatch.setattr(image.image_base, "__file__", str(world.root / "README.md"))
    monkeypatch.setattr(image.image_base, "build", lambda target, reference: target.write_text(reference))
    monkeypatch.setattr(image, "release", lambda: "debian-trixie-x86_64")
    missing = []
    monkeypatch.setattr(image, "missing_programs", lambda: missing)
    return missing


PINNED = "docker.io/python:3@sha256:aa"


def test_the_pinned_base_where_it_can_be_pulled(world, debian):
    builder = FakeBuilder("")
    assert image.provide_base(Wanted(), builder, world.cache) == (PINNED, PINNED)
    assert builder.loaded == []


@pytest.mark.parametrize("base", ["", "debian"])
def test_a_base_of_debian_packages_is_made_once(world, debian, base, capsys):
    builder = FakeBuilder("no such host")
    for _ in range(2):
        found = image.provide_base(Wanted(base), builder, world.cache)
    origin = "Debian's packages (debian-trixie-x86_64), for tests only, do not push it"
    assert found == (image.DEBIAN_BASE, origin)
    assert builder.loaded == [image.DEBIAN_BASE] * 2
    output = capsys.readouterr().out
    assert output.count("making a base image from Debian's packages") == 1
    assert output.count(f"the base image {PINNED} cannot be pulled: no such host") == (0 if base else 2)


def test_an_earlier_base_is_removed(world, debian):
    (world.cache / "base-debian-bookworm-x86_64-00.tar").write_text("earlier")
    image.provide_base(Wanted("debian"), FakeBuilder(""), world.cache)
    (left,) = world.in_cache()
    assert left.startswith("base-debian-trixie-x86_64-")


def test_only_the_pinned_one_was_asked_for(world, debian):
    with pytest.raises(ImageError, match=f"the base image {PINNED} cannot be pulled: no such host"):
        image.provide_base(Wanted("pinned"), FakeBuilder("no such host"), world.cache)


def test_neither_a_registry_nor_debian(world, debian):
    debian.append("apt-get")
    with pytest.raises(ImageError) as caught:
        image.provide_base(Wanted(), FakeBuilder("no such host"), world.cache)
    assert "without apt-get none can be made from Debian's packages" in str(caught.value)
    assert "\n" not in str(caught.value)


LISTED = """\
:env:.find-links='/opt/wheels'
:env:.index-url='https://one.example/simple'
global.cert='/etc/ssl/certs/ca-certificates.crt'
global.extra-index-url='https://two.example/simple\\nhttps://three.example/simple'
global.timeout='60'
install.user='true'
"""


def test_settings_of_pip_that_reach_a_build():
    assert image.pip_settings(LISTED) == {
        "index-url": "https://one.example/simple",
        "extra-index-url": "https://two.example/simple https://three.example/simple",
        "timeout": "60",
    }
    assert image.pip_settings("") == {}


def test_the_first_stage_has_pips_settings_and_certificates(tmp_path, monkeypatch):
    (tmp_path / "ca.crt").write_text("authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(image, "must", lambda _command: LISTED)
    builder = FakeBuilder("")
    image.build_base(builder, tmp_path / "context", "base:1")
    assert builder.built == [(["Dockerfile", "certificates.crt", "pip.conf"], image.BUILD_BASE, {})]
    assert (tmp_path / "context" / "Dockerfile").read_text().splitlines()[:2] == [
        "FROM base:1",
        "LABEL io.raytide.build-stage=true",
    ]
    assert "cert = /etc/ssl/certs/ca-certificates.crt\n" in (tmp_path / "context" / "pip.conf").read_text()
