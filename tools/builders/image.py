"""Build and check the container image: the Dockerfile, by the builder that this machine has.

Takes the base image that the Dockerfile pins or, where it cannot be pulled, one made from Debian's packages (image_base.py).
The result is a docker-archive with the name `docker.io/library/raytide:dev` in the cache folder, below a digest of everything
that it is made of: a second call only compares. It is there only if all checks passed, and an unfinished build leaves nothing.
Nothing is pushed. The last line of the output is the archive's path; exit code 2 and one line say what is missing. Called
by `make image`.
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
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import go_build
import image_base
import image_contents
import image_starts
from debian_packages import DebianError, missing_programs, release
from environments import cache_folder
from image_buildah import Buildah
from image_builders import STAGE_LABEL, Builder, BuilderMissingError, BuildError, Engine, find_builder, must

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = ROOT / "requirements" / "image.txt"
REFERENCE: Final = "docker.io/library/raytide:dev"
DEBIAN_BASE: Final = "localhost/raytide-base:debian"
BUILD_BASE: Final = "localhost/raytide-build-base:dev"
ARCHIVE: Final = "raytide.tar"
REPORT: Final = "report.txt"
NEEDED_BYTES: Final = 1_500_000_000
"""What an unfinished build takes at most, with buildah."""
KEPT: Final = 3
"""Results of earlier sources that stay in the cache folder."""
BASES: Final = ("", "pinned", "debian")
PIP_SETTINGS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")
"""Of the machine's pip, what a build needs to reach the same package index."""


class ImageError(Exception):
    """The image cannot be built or failed a check; the message is for a person."""


class SpaceError(Exception):
    """The disk of the cache folder is full; the message is one line."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person chose."""

    base: str = ""
    builder: str = ""


def provide(wanted: Wanted, environ: Mapping[str, str] = os.environ) -> Path:
    """The archive of the checked image; builds it if it is not there."""
    cache = cache_folder("image", environ)
    built = cache / digest(wanted) / ARCHIVE
    with go_build.locked(cache):
        for left in cache.glob(f"{go_build.UNFINISHED}*"):
            shutil.rmtree(left)
        if not built.exists():
            check_space(cache)
            builder = find_builder(wanted.builder)
            with tempfile.TemporaryDirectory(dir=cache, prefix=go_build.UNFINISHED) as work:
                make(wanted, cache, Path(work), builder)
                built.parent.mkdir(exist_ok=True)
                for name in (REPORT, ARCHIVE):  # the archive last: with it, the result is complete
                    Path(work, name).replace(built.with_name(name))
        built.parent.touch()
        point_to(built, cache)
        remove_old(cache, built)
    return built


def make(wanted: Wanted, cache: Path, work: Path, builder_name: str) -> None:
    """Build, check, and leave archive and report in `work`; raises ImageError, BuildError or DebianError."""
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
    """Reference of the base image and where it comes from."""
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
        unfinished = cache / f"{go_build.UNFINISHED}base"
        unfinished.mkdir()
        image_base.build(unfinished / archive.name, DEBIAN_BASE)
        for old in cache.glob("base-*.tar"):
            old.unlink()
        (unfinished / archive.name).replace(archive)
        unfinished.rmdir()
    builder.load(archive)
    return DEBIAN_BASE, f"Debian's packages ({release()}), for tests only, do not push it"


def build_base(builder: Builder, context: Path, base: str) -> None:
    """Build what the first stage starts from: the base, this machine's certificates and its settings of pip."""
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
    """Lines with what was measured; raises ImageError with every problem."""
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
    """Every file that decides what the image is and how it is checked."""
    yield ROOT / "Dockerfile"
    ignored = ROOT / ".dockerignore"
    yield ignored
    allowed = [line[1:] for line in ignored.read_text().splitlines() if line.startswith("!")]
    for name in sorted(allowed):
        place = ROOT / name
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in files if path.is_file() and "__pycache__" not in path.parts)
    for module in ("builders/image*.py", "builders/debian_packages.py", "checks/image_*.py"):
        yield from sorted((ROOT / "tools").glob(module))


def source_digest(files: Iterator[Path] | list[Path], *words: str) -> str:
    """Changes with the name, content or permissions of a file, and with each word."""
    found = hashlib.sha256(repr(words).encode())
    for path in files:
        content = path.read_bytes()
        name = path.relative_to(ROOT)
        found.update(f"{name} {os.access(path, os.X_OK)} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def digest(wanted: Wanted) -> str:
    """Changes with everything that the image is made of."""
    return source_digest(sources(), release(), wanted.base, wanted.builder)


def check_space(cache: Path) -> None:
    """Raise SpaceError where a build would fill the disk."""
    free = shutil.disk_usage(cache).free
    if free < NEEDED_BYTES:
        raise SpaceError(no_space(cache, f"{free / 1e9:.1f} GB are free"))


def no_space(cache: Path, found: str) -> str:
    """What to do about a full disk."""
    return f"no space in {cache}: {found}, {NEEDED_BYTES / 1e9:.1f} GB are needed; free some, or set XDG_CACHE_HOME"


def point_to(built: Path, cache: Path) -> None:
    """Make `current` (a line) and `raytide.tar` (a link) name this result."""
    go_build.point_to(built, cache)
    link = cache / f".{ARCHIVE}.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(built.relative_to(cache))
    link.replace(cache / ARCHIVE)


def remove_old(cache: Path, built: Path) -> None:
    """Keep only the results that were used last."""
    results = sorted(cache.glob(f"*/{ARCHIVE}"), key=lambda path: path.parent.stat().st_mtime, reverse=True)
    for old in results[KEPT:]:
        if old != built:
            shutil.rmtree(old.parent)


def failed(error: Exception, code: int) -> int:
    """Print the error; the exit code."""
    is_full = isinstance(error, OSError) or "no space left on device" in str(error).lower()
    print(no_space(cache_folder("image"), "the disk is full") if is_full else error, file=sys.stderr)
    return 2 if is_full else code


def main() -> int:
    """Build it; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", choices=BASES, default="", help="only this base image")
    parser.add_argument("--builder", default="", help="only this builder")
    chosen = parser.parse_args()
    started = time.monotonic()
    try:
        built = provide(Wanted(chosen.base, chosen.builder))
    except (BuilderMissingError, DebianError, SpaceError) as error:
        return failed(error, 2)
    except (ImageError, BuildError) as error:
        return failed(error, 1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return failed(error, 2)
    print(built.with_name(REPORT).read_text(), end="")
    print(f"image {REFERENCE} ({time.monotonic() - started:.1f} s):")
    print(built)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing is left of the unfinished image")
