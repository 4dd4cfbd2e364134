"""Build the documentation site: the repository's pages as HTML in dist/site.

The pages keep their paths, so that links between them are the same on GitHub and on the site; links to other files lead to the
source repository. mkdocs comes from an environment of its own, with the versions of requirements/docs.txt, and fails for each page
that the navigation does not have and each link that leads nowhere. With `--serve` it serves the site on loopback and builds it
again when a page changes. Called by `make site`.
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
"""Folders whose pages are for developers who read them beside the code."""
CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")


def listed_files() -> list[str]:
    """Pages of the repository, and the files below docs/ that they show."""
    run = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "docs"]
    listed = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in dict.fromkeys(listed) if not name.startswith(LEFT_OUT) and (ROOT / name).is_file()]


def relink(text: str, page: str, is_page: Callable[[str], bool], source: str) -> str:
    """The page with links to files that the site does not have leading to the source repository.

    `page` is its path in the repository, `source` the address of the repository's files.
    """

    def changed(link: re.Match[str]) -> str:
        begin, target, end = link.groups()
        if SCHEME.match(target):
            return link.group()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        return link.group() if is_page(path) else f"{begin}{source}/{path}{end}"

    parts = CODE.split(text)
    return "".join(part if number % 2 else LINK.sub(changed, part) for number, part in enumerate(parts))


def stage(folder: Path, source: str) -> int:
    """Write all pages into the folder; returns their number."""
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
    asked = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    try:
        programs = security_tools.provide_packages(LOCK)
    except security_tools.PackagesMissingError as error:
        print(error, file=sys.stderr)
        return 1
    count = stage(PAGES, f"{project['urls']['Source']}/blob/main")
    action = ["serve"] if asked.serve else ["build", "--strict", "--quiet"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run([programs / "mkdocs", *action, "-f", ROOT / "mkdocs.yml"], env=environment, check=False)
    if ended.returncode == 0 and not asked.serve:
        print(f"site: {count} pages in dist/site")
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
