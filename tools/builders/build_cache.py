"""Build cache: results of the builders, below the user's cache folder.

A result is built once and appears complete or not at all, however its builder ends; builders of the same kind wait for each
other. Used by the builders, tools/node and tools/kind.
"""

import argparse
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

POINTER = "current"
UNFINISHED = ".building-"


def cache_folder(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of one kind of results, shared by all checkouts; it need not exist."""
    folder = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/"), ".cache")
    return Path(folder, "raytide", name)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of this folder, which is created; the kernel releases it when the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def unfinished(folder: Path) -> Iterator[Path]:
    """A temporary folder in `folder`, which the caller has locked; those of killed builders are removed first."""
    for left in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=folder, prefix=UNFINISHED) as made:
        yield Path(made)


def create_once(target: Path, what: str, create: Callable[[Path], Path]) -> Path:
    """The file or folder `target`; if it does not exist, what `create` makes in the temporary folder that it gets.

    `what` is printed to standard error before: callers print paths to standard output.
    """
    with locked(target.parent):
        if not target.exists():
            print(f"{what} …", file=sys.stderr, flush=True)
            with unfinished(target.parent) as folder:
                create(folder).replace(target)
    return target


def point_to(built: Path, folder: Path) -> None:
    """Write the path of the newest result to the file `current` in `folder`."""
    new = folder / f".{POINTER}.{os.getpid()}"
    new.write_text(f"{built}\n")
    new.replace(folder / POINTER)


def print_provided(
    doc: str | None, provide: Callable[[], object], missing: type[Exception] | tuple[type[Exception], ...]
) -> int:
    """The command line of a builder of what not every machine can have: print what it provides, or why there is none.

    Returns the exit code: 0 without it, or 1 with `--require`. `doc` is the module's docstring.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--require", action="store_true", help="fail where it is not available")
    is_required = parser.parse_args().require
    try:
        print(provide())
    except missing as error:
        print(f"not run: {error}", file=sys.stderr)
        return 1 if is_required else 0
    return 0
