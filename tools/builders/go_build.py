"""Programs built with Go from modules that go.mod and go.sum pin, in the cache folder.

The folder of a program is named after a hash of these files and Go's version, so that nothing is built twice. Without a Go of
the required version, functions raise `GoMissingError` with one line. Used by control_plane.py, kube_tools.py,
node_programs.py, kind_programs.py and security_tools.py.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from build_cache import locked, unfinished
from raytide_sandbox.controlplane.component import ControlPlaneError

MODULE = Path(__file__).resolve().parents[2] / "tests" / "controlplane"
FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")
KUBERNETES = "k8s.io/component-base/version"
"""Package with the version that programs of Kubernetes report; the sources of the module proxy have a placeholder there."""
SETTINGS = {"GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}
"""Settings of the user do not change the result; without cgo, it runs on any Linux."""
GOGC = "400"
"""Of the compiler, which spends a fifth of its time on garbage collection with the default; the result is the same."""


class GoMissingError(Exception):
    """Go is not installed, or too old."""


class BuildError(Exception):
    """Go failed; the message ends with the last lines of its output."""


def wanted_go(module: Path) -> str:
    """The oldest version of Go that go.mod allows."""
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
        reason = found[0] if found else (asked.stderr.strip().splitlines() or ["no output"])[-1]
        raise GoMissingError(f"Go {wanted} or newer is needed, but the one on PATH cannot be used ({reason})")
    return f"{found[0]} {found[1]}/{found[2]}"


def numbers(version: str) -> list[int]:
    """The first three numbers of a version, which can be compared."""
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _environ() -> dict[str, str]:
    return {"GOGC": GOGC, **os.environ, **SETTINGS}


def digest(files: Iterable[Path], go: str) -> str:
    """Hash of the files, the version of Go and the settings of the build."""
    found = hashlib.sha256(f"{go} {FLAGS} {KUBERNETES} {SETTINGS}".encode())
    for file in files:
        content = file.read_bytes()
        found.update(f"{file.name} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def linker_flags(module: Path) -> str:
    """Linker flags: no debug symbols, and the version of Kubernetes, which helm compares with the one that a chart requires."""
    flags = ["-s", "-w"]
    pinned = re.search(r"^\s*k8s\.io/kubernetes v((\d+)\.(\d+)\.\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    if pinned:
        version, major, minor = pinned.groups()
        version_info = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
        flags += [f"-X {KUBERNETES}.{name}={value}" for name, value in version_info.items()]
    return f"-ldflags={' '.join(flags)}"


def build(module: Path, package: str, target: Path) -> None:
    """Build the program of a package as `target`, whose folder the caller has locked; raises BuildError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(target.parent) as folder:
        made = folder / target.name
        command = ["go", "build", *FLAGS, linker_flags(module), "-o", str(made), package]
        done = subprocess.run(command, cwd=module, env=_environ(), stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise BuildError("\n".join([f"building {target.name} failed:", *done.stderr.strip().splitlines()[-10:]]))
        made.replace(target)


def program_folder(cache: Path, module: Path) -> Path:
    """The folder of the programs of this module, which need not exist; raises GoMissingError."""
    files = [module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))]
    return cache / digest(files, go_version(module)) / "bin"


def build_missing(cache: Path, module: Path, packages: Mapping[str, str]) -> Path:
    """The folder of the programs of these packages, those that are missing built; raises GoMissingError or BuildError."""
    folder = program_folder(cache, module)
    with locked(cache):
        for name, package in packages.items():
            if not (folder / name).exists():
                print(f"building {name} with Go …", flush=True)
                build(module, package, folder / name)
    return folder


def module_folder(module: Path, name: str) -> Path:
    """The sources of a module that `module` pins, downloaded if they are missing; raises BuildError."""
    for words in (("mod", "download", name), ("list", "-m", "-f", "{{.Dir}}", name)):
        done = subprocess.run(["go", *words], cwd=module, env=_environ(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(
                f"module {name} cannot be downloaded: {(done.stderr.strip().splitlines() or ['no error'])[-1]}"
            )
    return Path(done.stdout.strip())


def report(what: str, provide: Callable[[], Path], alternative: str = "") -> int:
    """Call `provide`; print the path that it returns and the seconds, or what is missing. Returns the exit code for make."""
    started = time.monotonic()
    try:
        path = provide()
    except GoMissingError as error:
        print(f"{error}: install it (https://go.dev/dl){alternative}", file=sys.stderr)
        return 2
    except (BuildError, ControlPlaneError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{what}: {path} ({time.monotonic() - started:.1f} s)")
    return 0
