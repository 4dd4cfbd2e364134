"""Chromium for the tests and the pictures of the page of `raytide ui`; nothing is installed on the machine.

`provide` gives a browser from PATH, else Debian's headless Chromium with its libraries and a font, unpacked from packages of the
machine's own release in the user's cache folder. libc is the machine's: the loader of a program and its libc belong together. Run as
a program it prints where the browser is; where there is none it says so in one line and ends with 0, or with --require with 1.
Called by `make test-ui` and `make pictures`.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import debian_packages
import debian_root
import go_build
from environments import cache_folder

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell")
"""Programs on PATH, the best known first."""
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
PROGRAM = "usr/lib/chromium/chromium-headless-shell"
LIBC = ("libc6", "libc-bin")
FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{root}/usr/share/fonts</dir><cachedir>{root}/var/cache/fontconfig</cachedir></fontconfig>
"""


class BrowserMissingError(Exception):
    """There is no browser on this machine, and none can be unpacked; the message is one line."""


@dataclass(frozen=True)
class Browser:
    """A program, and what its environment needs besides."""

    program: Path
    environ: Mapping[str, str] = field(default_factory=dict)


def provide(environ: Mapping[str, str] = os.environ) -> Browser:
    """The browser, unpacked on first use; raises BrowserMissingError."""
    for name in NAMES:
        if found := shutil.which(name, path=environ.get("PATH", "")):
            return Browser(Path(found))
    try:
        return unpacked(_folder(environ))
    except (debian_packages.DebianError, OSError) as error:
        raise BrowserMissingError(f"no Chromium on PATH ({', '.join(NAMES)}), and {error}") from error


def unpacked(root: Path) -> Browser:
    """The browser below that folder."""
    folders = sorted({file.parent for file in (root / "usr" / "lib").rglob("*.so*")})
    environ = {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "FONTCONFIG_FILE": str(root / "fonts.conf")}
    return Browser(root / PROGRAM, environ)


def _folder(environ: Mapping[str, str]) -> Path:
    """The folder with the packages; it appears complete or not at all."""
    cache = cache_folder("browser", environ)
    folder = cache / debian_root.digest(PACKAGES, debian_packages.release())
    with go_build.locked(cache):
        if not folder.exists():
            print(f"unpacking Debian packages: {' '.join(PACKAGES)} …", file=sys.stderr, flush=True)
            for left in cache.glob(f"{go_build.UNFINISHED}*"):
                shutil.rmtree(left)
            with tempfile.TemporaryDirectory(dir=cache, prefix=go_build.UNFINISHED) as made:
                root = Path(made, "root")
                packages = debian_packages.Apt(Path(made)).download(PACKAGES, lambda name: name not in LIBC)
                debian_packages.unpack(packages, root)
                (root / "fonts.conf").write_text(FONTS.format(root=folder))
                root.replace(folder)
    return folder


def main() -> int:
    """Print where it is, or why it is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--require", action="store_true", help="fail where it is not available")
    is_required = parser.parse_args().require
    try:
        print(provide().program)
    except BrowserMissingError as error:
        print(f"not run: {error}", file=sys.stderr)
        return 1 if is_required else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
