"""Which builder `make image` takes, and what it says where there is none. Small scripts stand in for the programs."""

import os
import shutil

import pytest

import image_builders
from image_builders import BuilderMissingError, BuildError, Engine, find_builder

DOCKER = """#!/bin/sh
echo "$*" >>"$FAKE_LOG"
case "$1" in
version) [ -z "$FAKE_ERROR" ] || { echo "$FAKE_ERROR" >&2; exit 1; }; echo "${FAKE_VERSION:-28.2.2}" ;;
build) echo "BUILDX_BUILDER=$BUILDX_BUILDER" >>"$FAKE_LOG"; [ -z "$FAKE_BUILD_ERROR" ] || { echo "$FAKE_BUILD_ERROR"; exit 1; } ;;
pull) [ -z "$FAKE_PULL_ERROR" ] || { echo "warning" >&2; echo "$FAKE_PULL_ERROR" >&2; exit 1; } ;;
image) echo 5 ;;
esac
"""
PODMAN = '#!/bin/sh\n[ -z "$FAKE_PODMAN" ] || { echo "$FAKE_PODMAN" >&2; exit 1; }\n'
UNSHARE = '#!/bin/sh\n[ -z "$FAKE_UNSHARE" ] || { echo "$FAKE_UNSHARE" >&2; exit 1; }\n'
REMEDY = "start Docker or Podman, or run it as root on Debian or Ubuntu"


class Machine:
    """A PATH and a user of a test's own."""

    def __init__(self, folder, monkeypatch):
        self.folder, self._monkeypatch = folder, monkeypatch
        self.log = folder / "log"
        (folder / "bin").mkdir()
        for name in ("sh", "setpriv"):
            (folder / "bin" / name).symlink_to(shutil.which(name))
        self.set(PATH=str(folder / "bin"), FAKE_LOG=str(self.log))
        for name in image_builders.PROXIES:
            monkeypatch.delenv(name, raising=False)
        self.is_root(True)

    def set(self, **variables):
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    def is_root(self, value):
        self._monkeypatch.setattr(os, "geteuid", lambda: 0 if value else 1000)

    def put(self, name, text="#!/bin/sh\n"):
        (self.folder / "bin" / name).write_text(text)
        (self.folder / "bin" / name).chmod(0o755)

    def message(self, wanted=""):
        with pytest.raises(BuilderMissingError) as caught:
            find_builder(wanted)
        assert "\n" not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("programs", "found"),
    [
        ({"docker": DOCKER, "podman": PODMAN, "unshare": UNSHARE, "buildah": PODMAN}, "docker"),
        ({"podman": PODMAN, "unshare": UNSHARE, "buildah": PODMAN}, "podman"),
        ({"unshare": UNSHARE, "buildah": PODMAN}, "buildah"),
        ({"unshare": UNSHARE, "apt-get": PODMAN}, "buildah"),
    ],
    ids=["Docker first", "Podman", "buildah on PATH", "buildah from Debian's packages"],
)
def test_the_first_that_works_is_taken(machine, programs, found):
    for name, text in programs.items():
        machine.put(name, text)
    assert find_builder() == found


def test_a_docker_without_a_daemon_is_passed_over(machine):
    for name, text in {"docker": DOCKER, "unshare": UNSHARE, "apt-get": PODMAN}.items():
        machine.put(name, text)
    machine.set(FAKE_ERROR="Cannot connect to the Docker daemon")
    assert find_builder() == "buildah"
    assert machine.message("docker") == (
        f"no image can be built on this machine: docker does not work (Cannot connect to the Docker daemon); {REMEDY}"
    )


@pytest.mark.parametrize(("version", "is_found"), [("19.03.15", False), ("20.10.24", True), ("28.2.2", True)])
def test_an_old_docker_is_named_with_its_version(machine, version, is_found):
    machine.put("docker", DOCKER)
    machine.set(FAKE_VERSION=version)
    if is_found:
        assert find_builder("docker") == "docker"
    else:
        assert f"docker {version} is older than 20.10" in machine.message()


def test_a_machine_with_nothing_gets_every_reason_and_the_remedy(machine):
    machine.put("unshare", UNSHARE)
    nothing = (
        "docker is not on PATH; podman is not on PATH; buildah is not on PATH, and there is no apt-get to download it"
    )
    assert machine.message() == f"no image can be built on this machine: {nothing}; {REMEDY}"


def test_without_root(machine):
    machine.put("apt-get")
    machine.is_root(False)
    assert "buildah needs root" in machine.message()


def test_without_a_feature_of_the_kernel(machine):
    machine.put("apt-get")
    assert "buildah needs unshare (package util-linux)" in machine.message()
    machine.put("unshare", UNSHARE)
    machine.set(FAKE_UNSHARE="unshare: unshare failed: Operation not permitted")
    assert "does not allow (unshare: unshare failed: Operation not permitted)" in machine.message()


def test_an_unknown_builder(machine):
    assert machine.message("kaniko") == "BUILDER=kaniko is unknown: set one of docker, podman, buildah"


def test_a_program_that_does_not_answer_is_a_reason():
    asked = image_builders.ask("sleep", "60", deadline_s=0.01)
    assert (asked.returncode, asked.stderr) == (1, "no answer within 0.01 s")


# --- Docker and Podman ---------------------------------------------------------------------------------------------------


def test_build_arguments_and_proxies_reach_docker(machine, tmp_path):
    machine.put("docker", DOCKER)
    machine.set(HTTPS_PROXY="http://secret@proxy:1")
    Engine("docker").build(tmp_path, "raytide:dev", {"PYTHON_IMAGE": "base:1"})
    asked, builder = machine.log.read_text().splitlines()
    assert (
        asked
        == f"build --network host --tag raytide:dev --build-arg PYTHON_IMAGE=base:1 --build-arg HTTPS_PROXY {tmp_path}"
    )
    assert builder == "BUILDX_BUILDER=default"


def test_a_failed_build_ends_with_dockers_words(machine, tmp_path):
    machine.put("docker", DOCKER)
    machine.set(FAKE_BUILD_ERROR="no such package")
    with pytest.raises(BuildError, match=r"(?s)failed: docker build .*no such package$"):
        Engine("docker").build(tmp_path, "raytide:dev", {})


def test_a_pull_returns_the_reason_or_nothing(machine):
    machine.put("docker", DOCKER)
    assert Engine("docker").pull("python:3") == ""
    machine.set(FAKE_PULL_ERROR="no such host")
    assert Engine("docker").pull("python:3") == "no such host"


def test_stages_are_removed_and_no_other_image(machine):
    machine.put("docker", DOCKER)
    Engine("docker").remove("build-base:dev")
    assert machine.log.read_text().splitlines() == [
        "image rm --force build-base:dev",
        "image prune --force --filter label=io.raytide.build-stage",
    ]


def test_layers_are_counted(machine):
    machine.put("docker", DOCKER)
    assert Engine("docker").layer_count("python:3") == 5


def test_containers_have_a_read_only_root_and_no_capabilities(machine, tmp_path):
    with Engine("docker").containers("raytide:dev", tmp_path) as containers:
        command = containers.command((1000660000, 0), {"A": "1"}, "operator")
    assert command[:3] == ["docker", "run", "--rm"]
    assert {"--read-only", "no-new-privileges", "ALL", "1000660000:0", "A=1"} <= set(command)
    assert command[-2:] == ["raytide:dev", "operator"]
