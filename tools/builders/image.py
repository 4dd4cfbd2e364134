"""Build and check the container image: the Dockerfile, by the builder that this machine has.

The base image is the one that the Dockerfile pins or, where it cannot be pulled, one made of Debian packages (image_base.py).
The result is a docker-archive with the name `docker.io/library/raytide:dev` in the cache folder, below a hash of its sources, so
that nothing is built twice. It exists only if all checks passed. Nothing is pushed. The last line of the output is the path of
the archive; if something is missing, one line says what, and the exit code is 2. Called by `make image`.
"""

import argparse
import ast
import errno
import hashlib
import os
import re
import shutil
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import build_cache
import image_base
import image_contents
import image_starts
from build_cache import UNFINISHED, cache_folder
from debian_packages import DebianError, missing_programs, release
from image_buildah import Buildah
from image_builders import STAGE_LABEL, BuilderMissingError, BuildError, Engine, find_builder, must

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = ROOT / "requirements" / "image.txt"
REFERENCE: Final = "docker.io/library/raytide:dev"
DEBIAN_BASE: Final = "localhost/raytide-base:debian"
BUILD_BASE: Final = "localhost/raytide-build-base:dev"
ARCHIVE: Final = "raytide.tar"
REPORT: Final = "report.txt"
NEEDED_BYTES: Final = 1_500_000_000
"""Most that a build with buildah writes."""
KEPT: Final = 3
"""Results in the cache folder; older ones are removed."""
BASES: Final = ("", "pinned", "debian")
PIP_SETTINGS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")
"""Settings of the machine's pip with which a build reaches the same package index."""
Builder = Engine | Buildah


class ImageError(Exception):
    """The image cannot be built or failed a check."""


class SpaceError(Exception):
    """The disk of the cache folder is full; the message is one line."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options of the command line; empty where the program chooses."""

    base: str = ""
    builder: str = ""


def provide(wanted: Wanted, environ: Mapping[str, str] = os.environ) -> Path:
    """The archive of the checked image, built at the first call."""
    cache = cache_folder("image", environ)
    built = cache / digest(wanted) / ARCHIVE
    with build_cache.locked(cache):
        if not built.exists():
            with build_cache.unfinished(cache) as work:
                check_space(cache)
                make(wanted, cache, work, find_builder(wanted.builder))
                built.parent.mkdir(exist_ok=True)
                for name in (REPORT, ARCHIVE):  # the archive last: with it, the result is complete
                    (work / name).replace(built.with_name(name))
        built.parent.touch()
        point_to(built, cache)
        remove_old(cache, built)
    return built


def make(wanted: Wanted, cache: Path, work: Path, builder_name: str) -> None:
    """Build and check the image; write archive and report to `work`. Raises ImageError, BuildError or DebianError."""
    storage = work / "storage"
    storage.mkdir()
    builder: Builder = Buildah(cache, storage) if builder_name == "buildah" else Engine(builder_name)
    base, origin = provide_base(wanted, builder, cache)
    print(f"building {REFERENCE} with {builder.name} …", flush=True)
    began = time.monotonic()
    try:
        build_base(builder, work / "build-base", base)
        builder.build(ROOT, REFERENCE, {"PYTHON_IMAGE": base, "BUILD_IMAGE": BUILD_BASE})
    finally:
        builder.remove(BUILD_BASE)  # it may have the address of a private package index
    took_s = time.monotonic() - began
    archive = work / ARCHIVE
    builder.save(REFERENCE, archive)
    report = [
        f"built with {builder.name} in {took_s:.0f} s; base image: {origin}",
        *check(builder, archive, base, work),
    ]
    (work / REPORT).write_text("".join(f"{line}\n" for line in report))


# --- base images ---------------------------------------------------------------------------------------------------------


def pinned_base() -> str:
    """The base image that the Dockerfile names by its digest."""
    return re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0]


def provide_base(wanted: Wanted, builder: Builder, cache: Path) -> tuple[str, str]:
    """Reference of the base image, and its origin for the report."""
    pinned = pinned_base()
    why = "BASE=debian" if wanted.base == "debian" else builder.pull(pinned)
    if not why:
        return pinned, pinned
    if wanted.base == "pinned":
        raise ImageError(f"the base image {pinned} cannot be pulled: {why}")
    if wanted.base != "debian":
        print(f"the base image {pinned} cannot be pulled: {why}", flush=True)
    if missing := missing_programs():
        raise ImageError(
            f"the base image {pinned} cannot be pulled ({why}), and without {' and '.join(missing)} none can be made from "
            "Debian's packages: give this machine access to the registry, or use one with Debian or Ubuntu"
        )
    archive = cache / f"base-{release()}-{source_digest([Path(image_base.__file__)])}.tar"
    if not archive.exists():
        print("making a base image from Debian's packages …", flush=True)
        unfinished = cache / f"{UNFINISHED}base"
        unfinished.mkdir()
        image_base.build(unfinished / archive.name, DEBIAN_BASE)
        for old in cache.glob("base-*.tar"):
            old.unlink()
        (unfinished / archive.name).replace(archive)
        unfinished.rmdir()
    builder.load(archive)
    return DEBIAN_BASE, f"Debian's packages ({release()}), for tests only, do not push it"


def build_base(builder: Builder, context: Path, base: str) -> None:
    """Build the base of the first stage: the base image with this machine's certificates and settings of pip."""
    context.mkdir()
    lines = [f"FROM {base}", f"LABEL {STAGE_LABEL}=true"]
    settings = pip_settings(must([sys.executable, "-m", "pip", "config", "list"]))
    certificates = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    if certificates and Path(certificates).is_file():
        shutil.copyfile(certificates, context / "certificates.crt")
        lines.append(f"COPY certificates.crt /{image_base.CERTIFICATES}")
        settings["cert"] = f"/{image_base.CERTIFICATES}"  # pip before 24.2 has certificates of its own
    (context / "pip.conf").write_text("".join(["[global]\n", *(f"{k} = {v}\n" for k, v in settings.items())]))
    lines.append("COPY pip.conf /etc/pip.conf")
    (context / "Dockerfile").write_text("".join(f"{line}\n" for line in lines))
    builder.build(context, BUILD_BASE, {})


def pip_settings(listed: str) -> dict[str, str]:
    """Settings from `pip config list` that a build needs, those of the environment last."""
    found = re.findall(r"^(global|:env:)\.([\w-]+)=(.*)$", listed, re.MULTILINE)
    chosen = {name: ast.literal_eval(value) for _, name, value in found if name in PIP_SETTINGS}
    return {name: " ".join(str(value).split()) for name, value in chosen.items()}


# --- checks --------------------------------------------------------------------------------------------------------------


def check(builder: Builder, archive: Path, base: str, work: Path) -> list[str]:
    """Lines of the report; raises ImageError with all problems."""
    print("checking it …", flush=True)
    must(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(work),
            str(ROOT),
        ]
    )
    (wheel,) = work.glob("raytide-*.whl")
    image = image_contents.read_image(archive, builder.layer_count(base))
    found = image_contents.problems(image, wheel, LOCK)
    with image_starts.service_account() as account, builder.containers(REFERENCE, account) as containers:
        problems, sidecar = image_starts.problems(containers)
    found += problems
    if found:
        raise ImageError("\n".join(["the image failed its checks:", *(f"- {line}" for line in found)]))
    bars = image_contents.LARGEST_MB, image_starts.SIDECAR_STARTS_WITHIN_S
    own_mb, total_mb = image.own_bytes / 1e6, image.total_bytes / 1e6
    return [
        f"size: {own_mb:.1f} MB in our layers (at most {bars[0]} MB), {total_mb:.1f} MB with the base image",
        f"the sidecar connects {sidecar.took_s:.2f} s after its start, {sidecar.bar_s:.2f} s of CPU (at most {bars[1]:g} s)",
        f"{len(image.files)} files: none setuid, no shell, none of the sandbox; packages of {LOCK.name}, and the wheel as pip builds it",
        f"operator and sidecar start with a read-only root, as {' and as '.join(image_starts.USERS)}",
    ]


# --- the cache folder ----------------------------------------------------------------------------------------------------


def sources() -> Iterator[Path]:
    """All files on which the image and its checks depend."""
    yield ROOT / "Dockerfile"
    ignored = ROOT / ".dockerignore"
    yield ignored
    allowed = [line[1:] for line in ignored.read_text().splitlines() if line.startswith("!")]
    for name in sorted(allowed):
        path = ROOT / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (path for path in files if path.is_file() and "__pycache__" not in path.parts)
    for module in ("builders/image*.py", "builders/debian_packages.py", "checks/image_*.py"):
        yield from sorted((ROOT / "tools").glob(module))


def source_digest(files: Iterator[Path] | list[Path], *words: str) -> str:
    """Hash of names, contents and executable bits of the files, and of the words."""
    found = hashlib.sha256(repr(words).encode())
    for path in files:
        content = path.read_bytes()
        name = path.relative_to(ROOT)
        found.update(f"{name} {os.access(path, os.X_OK)} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def digest(wanted: Wanted) -> str:
    """Hash of everything on which the image depends."""
    return source_digest(sources(), release(), wanted.base, wanted.builder)


def check_space(cache: Path) -> None:
    """Raise SpaceError if a build could fill the disk."""
    free = shutil.disk_usage(cache).free
    if free < NEEDED_BYTES:
        raise SpaceError(no_space(cache, f"{free / 1e9:.1f} GB are free"))


def no_space(cache: Path, found: str) -> str:
    """Message about a full disk, with the fix."""
    return f"no space in {cache}: {found}, {NEEDED_BYTES / 1e9:.1f} GB are needed; free some, or set XDG_CACHE_HOME"


def point_to(built: Path, cache: Path) -> None:
    """Write the path of this result to `current`, and link `raytide.tar` to it."""
    build_cache.point_to(built, cache)
    link = cache / f".{ARCHIVE}.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(built.relative_to(cache))
    link.replace(cache / ARCHIVE)


def remove_old(cache: Path, built: Path) -> None:
    """Remove all results but the `KEPT` most recently used ones."""
    results = sorted(cache.glob(f"*/{ARCHIVE}"), key=lambda path: path.parent.stat().st_mtime, reverse=True)
    for old in results[KEPT:]:
        if old != built:
            shutil.rmtree(old.parent)


def report_error(error: Exception, code: int) -> int:
    """Print the error; returns `code`, or 2 if the disk is full."""
    is_full = isinstance(error, OSError) or "no space left on device" in str(error).lower()
    print(no_space(cache_folder("image"), "the disk is full") if is_full else error, file=sys.stderr)
    return 2 if is_full else code


def main() -> int:
    """Build and check the image; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", choices=BASES, default="", help="take this base image only")
    parser.add_argument("--builder", default="", help="take this builder only")
    chosen = parser.parse_args()
    started = time.monotonic()
    try:
        built = provide(Wanted(chosen.base, chosen.builder))
    except (BuilderMissingError, DebianError, SpaceError) as error:
        return report_error(error, 2)
    except (ImageError, BuildError) as error:
        return report_error(error, 1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return report_error(error, 2)
    print(built.with_name(REPORT).read_text(), end="")
    print(f"image {REFERENCE} ({time.monotonic() - started:.1f} s):")
    print(built)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; the unfinished image is removed")
