"""How does a program from the Go module proxy get into the user's cache folder?

Takes a module's folder and packages of it, builds them with the versions that go.mod and go.sum pin, and keeps the
result under a digest of these files and Go's version, so that a second call only compares. A program appears whole or not
at all, however the build ends, and two builds at once wait for each other. Without a Go that will do, `GoMissingError` says in
one line what to install. Used by control_plane.py, kube_tools.py, node_programs.py and
kind_programs.py.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

MODULE = Path(__file__).resolve().parents[2] / "tests" / "controlplane"
FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")
KUBERNETES = "k8s.io/component-base/version"
"""Where Kubernetes' programs look for the version they tell; the module proxy's sources have a placeholder there."""
SETTINGS = {"GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}
"""Nothing of the user's may change what is built; without C, it runs on any Linux."""
GOGC = "400"
"""Of the compiler, which collects garbage for a fifth of its time with the default; what it builds is the same."""
POINTER = "current"
UNFINISHED = ".building-"


class GoMissingError(Exception):
    """There is no Go, or one that is too old."""


class BuildError(Exception):
    """Go said no; the text ends with its words."""


def wanted_go(module: Path) -> str:
    """The oldest Go that will do, as go.mod says."""
    return re.findall(r"^go (\S+)$", (module / "go.mod").read_text(), re.MULTILINE)[0]


def go_version(module: Path) -> str:
    """The Go that would build this module, such as `go1.26.8 linux/amd64`; raises GoMissingError."""
    wanted = wanted_go(module)
    if shutil.which("go") is None:
        raise GoMissingError(f"Go {wanted} or newer is needed, and there is no go on PATH")
    names = ("GOVERSION", "GOOS", "GOARCH")
    asked = subprocess.run(
        ["go", "env", *names], cwd=module, env=_environ(), capture_output=True, text=True, check=False
    )
    found = asked.stdout.split()
    if asked.returncode or len(found) < len(names) or numbers(found[0]) < numbers(wanted):
        words = found[0] if found else (asked.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise GoMissingError(f"Go {wanted} or newer is needed, and this one will not do ({words})")
    return f"{found[0]} {found[1]}/{found[2]}"


def numbers(version: str) -> list[int]:
    """A version as something that can be compared."""
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _environ() -> dict[str, str]:
    return {"GOGC": GOGC, **os.environ, **SETTINGS}


def digest(files: Iterable[Path], go: str) -> str:
    """Changes with any of the files and with Go."""
    found = hashlib.sha256(f"{go} {FLAGS} {KUBERNETES} {SETTINGS}".encode())
    for file in files:
        content = file.read_bytes()
        found.update(f"{file.name} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def linker_flags(module: Path) -> str:
    """No debug symbols; and Kubernetes says its version, which helm compares with what a chart needs."""
    flags = ["-s", "-w"]
    pinned = re.search(r"^\s*k8s\.io/kubernetes v((\d+)\.(\d+)\.\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    if pinned:
        version, major, minor = pinned.groups()
        version_info = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
        flags += [f"-X {KUBERNETES}.{name}={value}" for name, value in version_info.items()]
    return f"-ldflags={' '.join(flags)}"


def build(module: Path, package: str, target: Path) -> None:
    """The package's program at `target`, whose folder is `locked`; raises BuildError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=UNFINISHED) as folder:
        made = Path(folder) / target.name
        command = ["go", "build", *FLAGS, linker_flags(module), "-o", str(made), package]
        done = subprocess.run(command, cwd=module, env=_environ(), stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise BuildError("\n".join([f"building {target.name} failed:", *done.stderr.strip().splitlines()[-10:]]))
        made.replace(target)


def module_folder(module: Path, name: str) -> Path:
    """The sources of a module that this one pins, downloaded where they are missing; raises BuildError."""
    for words in (("mod", "download", name), ("list", "-m", "-f", "{{.Dir}}", name)):
        done = subprocess.run(["go", *words], cwd=module, env=_environ(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"module {name} is not there: {(done.stderr.strip().splitlines() or ['no error'])[-1]}")
    return Path(done.stdout.strip())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One at a time in this folder; the kernel lets go however the program ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def point_to(built: Path, folder: Path) -> None:
    """Say in `folder` which of the results there is the newest."""
    new = folder / f".{POINTER}.{os.getpid()}"
    new.write_text(f"{built}\n")
    new.replace(folder / POINTER)


class InFolder(Protocol):
    """Programs, and the folder in which they are."""

    @property
    def folder(self) -> Path:
        """The folder."""


def report(what: str, provide: Callable[[], InFolder]) -> int:
    """Provide them and say where they are, or what is missing; the exit code of a builder that is called by make."""
    started = time.monotonic()
    try:
        programs = provide()
    except GoMissingError as error:
        print(f"{error}: install it (https://go.dev/dl)", file=sys.stderr)
        return 2
    except BuildError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{what}: {programs.folder} ({time.monotonic() - started:.1f} s)")
    return 0
