"""Build the documentation site: the repository's pages as HTML in dist/site.

Pages keep their paths, so that links between them are the same on GitHub and on the site; links to other files are rewritten to the
source repository. mkdocs runs in an environment with the versions of requirements/docs.txt, and fails for pages that the navigation
does not list and for broken links. `--serve` serves the site on loopback and rebuilds it when a page changes. Called by `make site`.
"""

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import security_tools

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "dist" / "site-pages"
LOCK = "docs.txt"
LEFT_OUT = ("tests/", "sandbox/", "dist/")
"""Folders whose pages are read beside the code, not on the site."""
CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")


def listed_files() -> list[str]:
    """Pages of the repository, and files below docs/ that they embed."""
    run = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "docs"]
    listed = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in dict.fromkeys(listed) if not name.startswith(LEFT_OUT) and (ROOT / name).is_file()]


def relink(text: str, page: str, is_page: Callable[[str], bool], source: str) -> str:
    """The text with links to files that are not on the site changed to the source repository.

    `page` is the path of the page in the repository, `source` the URL of the files of the repository.
    """

    def rewritten(link: re.Match[str]) -> str:
        begin, target, end = link.groups()
        if SCHEME.match(target):
            return link.group()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        return link.group() if is_page(path) else f"{begin}{source}/{path}{end}"

    parts = CODE.split(text)
    return "".join(part if number % 2 else LINK.sub(rewritten, part) for number, part in enumerate(parts))


def stage(folder: Path, source: str) -> int:
    """Write all pages to the folder; returns their number."""
    shutil.rmtree(folder, ignore_errors=True)
    files = listed_files()
    on_site = set(files).__contains__
    for name in files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            target.write_text(relink((ROOT / name).read_text(), name, on_site, source))
        else:
            shutil.copyfile(ROOT / name, target)
    return sum(name.endswith(".md") for name in files)


def main() -> int:
    """Build or serve the site; returns the exit code of mkdocs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="serve the site on 127.0.0.1:8000")
    is_served = parser.parse_args().serve
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    try:
        programs = security_tools.provide_packages(LOCK)
    except security_tools.PackagesMissingError as error:
        print(error, file=sys.stderr)
        return 1
    count = stage(PAGES, f"{project['urls']['Source']}/blob/main")
    action = ["serve"] if is_served else ["build", "--strict", "--quiet"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([programs / "mkdocs", *action, "-f", ROOT / "mkdocs.yml"], env=environment, check=False)
    if done.returncode == 0 and not is_served:
        print(f"site: {count} pages in dist/site")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
