"""Chromium for the tests and the pictures of the page of `raytide ui`; nothing is installed on the machine.

`provide` returns the browser on PATH, else Debian's headless Chromium with its libraries and a font, unpacked from packages of the
machine's release to the cache folder. libc is the machine's: a program's loader and its libc must be of the same version. As a
program it prints the path of the browser; if there is none, it prints "not run" with the reason, and the exit code is 0, with
--require 1. Called by `make test-ui` and `make pictures`.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import debian_packages
import debian_root
from build_cache import cache_folder, create_once, print_provided

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell")
"""Programs to look for on PATH, in the order of preference."""
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
PROGRAM = "usr/lib/chromium/chromium-headless-shell"
LIBC = ("libc6", "libc-bin")
FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{root}/usr/share/fonts</dir><cachedir>{root}/var/cache/fontconfig</cachedir></fontconfig>
"""


class BrowserMissingError(Exception):
    """No browser is installed, and none can be unpacked; the message is one line."""


@dataclass(frozen=True)
class Browser:
    """Path of the program, and environment variables that it requires."""

    program: Path
    environ: Mapping[str, str] = field(default_factory=dict)


def provide(environ: Mapping[str, str] = os.environ) -> Browser:
    """The browser, unpacked at the first call; raises BrowserMissingError."""
    for name in NAMES:
        if found := shutil.which(name, path=environ.get("PATH", "")):
            return Browser(Path(found))
    try:
        folder = cache_folder("browser", environ) / debian_root.digest(PACKAGES, debian_packages.release())
        what = f"unpacking Debian packages: {' '.join(PACKAGES)}"
        return unpacked(create_once(folder, what, lambda work: _unpack(work, folder)))
    except (debian_packages.DebianError, OSError) as error:
        raise BrowserMissingError(f"no Chromium on PATH ({', '.join(NAMES)}), and {error}") from error


def unpacked(root: Path) -> Browser:
    """The browser in the folder of the unpacked packages."""
    folders = sorted({file.parent for file in (root / "usr" / "lib").rglob("*.so*")})
    environ = {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "FONTCONFIG_FILE": str(root / "fonts.conf")}
    return Browser(root / PROGRAM, environ)


def _unpack(work: Path, folder: Path) -> Path:
    """Unpack the packages in `work`, from where they are moved to `folder`."""
    root = work / "root"
    debian_packages.unpack(debian_packages.Apt(work).download(PACKAGES, lambda name: name not in LIBC), root)
    (root / "fonts.conf").write_text(FONTS.format(root=folder))
    return root


def main() -> int:
    """Print what there is, or why there is none; returns the exit code."""
    return print_provided(__doc__, lambda: provide().program, BrowserMissingError)


if __name__ == "__main__":
    sys.exit(main())
