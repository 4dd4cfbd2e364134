"""Programs that build the container image from the Dockerfile.

`find_builder` returns the first of Docker, Podman and buildah that works on this machine, and raises `BuilderMissingError` with the
reason for each of them in one line. `Engine` is Docker or Podman; image_buildah.py has the same methods for buildah. Called by
image.py.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from debian_packages import last_line

DEADLINE_S: Final = 1800.0
PULL_DEADLINE_S: Final = 300.0
ASK_DEADLINE_S: Final = 20.0
OLDEST_DOCKER: Final = (20, 10)
"""Oldest version with which `docker build` and `docker save` are tested."""
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
STAGE_LABEL: Final = "io.raytide.build-stage"
"""Label of images that are removed after the build."""
REMEDY: Final = "start Docker or Podman, or run it as root on Debian or Ubuntu"


class BuilderMissingError(Exception):
    """No builder works on this machine; the message is one line."""


class BuildError(Exception):
    """A builder failed; the message ends with its last lines."""


class Containers(Protocol):
    """Containers of one image, with a read-only root and the network of the machine."""

    end_signal: signal.Signals
    """Signal to the process of a command that ends its container."""
    has_own_processes: bool
    """Whether the processes of a container are descendants of the command instead of a daemon."""

    def command(self, user: tuple[int, int], environ: Mapping[str, str], *arguments: str) -> list[str]:
        """The command that runs the image's entry point."""


# --- choice of the builder -----------------------------------------------------------------------------------------------


def why_not_docker() -> str:
    """Why Docker cannot be used; empty if it can."""
    if shutil.which("docker") is None:
        return "docker is not on PATH"
    asked = ask("docker", "version", "--format", "{{.Server.Version}}")
    if asked.returncode:
        return f"docker does not work ({last_line(asked.stderr)})"
    version = asked.stdout.strip()
    if numbers(version) < OLDEST_DOCKER:
        return f"docker {version} is older than {'.'.join(map(str, OLDEST_DOCKER))}"
    return ""


def why_not_podman() -> str:
    """Why Podman cannot be used; empty if it can."""
    if shutil.which("podman") is None:
        return "podman is not on PATH"
    asked = ask("podman", "info")
    return f"podman does not work ({last_line(asked.stderr)})" if asked.returncode else ""


def why_not_buildah() -> str:
    """Why buildah cannot be used, from PATH or from Debian's packages; empty if it can."""
    if os.geteuid() != 0:
        return "buildah needs root"
    if missing := [name for name in ("unshare", "setpriv") if shutil.which(name) is None]:
        return f"buildah needs {' and '.join(missing)} (package util-linux)"
    asked = ask("unshare", "--mount", "--pid", "--fork", "true")
    if asked.returncode:
        return f"buildah needs mount and process namespaces, which this kernel or container does not allow ({last_line(asked.stderr)})"
    if shutil.which("buildah") is None and shutil.which("apt-get") is None:
        return "buildah is not on PATH, and there is no apt-get to download it"
    return ""


REASONS = {"docker": why_not_docker, "podman": why_not_podman, "buildah": why_not_buildah}
"""Functions that return why a builder cannot be used, in the order of preference."""


def find_builder(wanted: str = "") -> str:
    """Name of the first builder that works, or `wanted` if it works; raises BuilderMissingError."""
    if wanted and wanted not in REASONS:
        raise BuilderMissingError(f"BUILDER={wanted} is unknown: set one of {', '.join(REASONS)}")
    reasons = []
    for name in [wanted] if wanted else REASONS:
        if not (reason := REASONS[name]()):
            return name
        reasons.append(reason)
    raise BuilderMissingError(f"no image can be built on this machine: {'; '.join(reasons)}; {REMEDY}")


def numbers(version: str) -> tuple[int, ...]:
    """Major and minor version, which can be compared."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


# --- programs ------------------------------------------------------------------------------------------------------------


def ask(
    *command: str, deadline_s: float = ASK_DEADLINE_S, environ: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a program; if the deadline is exceeded, the exit code is 1."""
    try:
        return subprocess.run(
            command, env=dict(environ), capture_output=True, text=True, check=False, timeout=deadline_s
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {deadline_s:g} s")


def must(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """Run a program and return its output; raises BuildError if it fails."""
    try:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, env=dict(environ), **pipes, text=True, check=False, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"not within {DEADLINE_S:g} s: {' '.join(command)}") from error
    if done.returncode:
        raise BuildError("\n".join([f"failed: {' '.join(command)}", *done.stdout.strip().splitlines()[-15:]]))
    return done.stdout


class Engine:
    """Docker or Podman, whose commands are the same."""

    def __init__(self, name: str) -> None:
        self.name = name
        # A builder of the driver docker-container does not have the images that `load` loads.
        self._environ = os.environ | {"BUILDX_BUILDER": "default"}

    def pull(self, reference: str) -> str:
        """Pull an image; returns the last line of the error, empty if it succeeded."""
        pulled = ask(self.name, "pull", "--quiet", reference, deadline_s=PULL_DEADLINE_S)
        return last_line(pulled.stderr) or "it failed" if pulled.returncode else ""

    def load(self, archive: Path) -> None:
        """Load the images of a docker-archive."""
        must([self.name, "load", "--input", str(archive)])

    def build(self, context: Path, reference: str, arguments: Mapping[str, str]) -> None:
        """Build the Dockerfile of `context` with these build arguments."""
        given = [f"{name}={value}" for name, value in arguments.items()]
        given += [name for name in PROXIES if os.environ.get(name)]  # their values come from the environment
        options = [word for argument in given for word in ("--build-arg", argument)]
        # The network of the machine, whose package index and DNS resolver may be on loopback.
        must([self.name, "build", "--network", "host", "--tag", reference, *options, str(context)], self._environ)

    def layer_count(self, reference: str) -> int:
        """Number of layers of an image."""
        return int(must([self.name, "image", "inspect", "--format", "{{len .RootFS.Layers}}", reference]))

    def save(self, reference: str, target: Path) -> None:
        """Write the image as a docker-archive."""
        must([self.name, "save", "--output", str(target), reference])

    def remove(self, reference: str) -> None:
        """Delete this image and the unnamed images that were built from it."""
        ask(self.name, "image", "rm", "--force", reference)
        ask(self.name, "image", "prune", "--force", "--filter", f"label={STAGE_LABEL}")

    @contextmanager
    def containers(self, reference: str, service_account: Path) -> Iterator[Containers]:
        """Containers of an image with this folder mounted as the service account of the pod."""
        yield EngineContainers(self.name, reference, service_account)


class EngineContainers:
    """Containers of Docker or Podman."""

    end_signal = signal.SIGTERM  # forwarded to the container; SIGKILL would end the client only
    has_own_processes = False

    def __init__(self, program: str, reference: str, service_account: Path) -> None:
        self._program = program
        self._reference = reference
        self._mount = f"{service_account}:{SERVICE_ACCOUNT}:ro"

    def command(self, user: tuple[int, int], environ: Mapping[str, str], *arguments: str) -> list[str]:
        """The command that runs the image's entry point."""
        isolation = ["--read-only", "--read-only-tmpfs=false"] if self._program == "podman" else ["--read-only"]
        isolation += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "host"]
        given = [word for name, value in environ.items() for word in ("--env", f"{name}={value}")]
        command = [self._program, "run", "--rm", *isolation, "--volume", self._mount]
        return [*command, "--user", f"{user[0]}:{user[1]}", *given, self._reference, *arguments]
