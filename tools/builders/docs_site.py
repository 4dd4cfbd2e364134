"""Build the documentation site: the repository's pages, and those written from code, as HTML in dist/site.

The pages keep their paths, so that links between them are the same on GitHub and on the site; links to other files lead to the
source repository. mkdocs comes from an environment of its own, with the versions of requirements/docs.txt, and fails for each page
that the navigation does not have and each link that leads nowhere. With `--serve` it serves the site on loopback and builds it
again when a page changes. Called by `make site`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family

import security_tools
from raytide.autoscaler.reporting.metrics import SidecarMetrics
from raytide.cli import COMMANDS
from raytide.cli import main as command
from raytide.metrics import REGISTRY
from site_pages import Metric, commands_page, fields_page, metrics_page, relink

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "dist" / "site-pages"
LOCK = "docs.txt"
LEFT_OUT = ("tests/", "sandbox/", "dist/")
"""Folders whose pages are for developers who read them beside the code."""
CRDS = {"raycluster": "ray.io_rayclusters.yaml", "trainingjob": "paddlepaddle.org_trainingjobs.yaml"}


def listed_files() -> list[str]:
    """Pages of the repository, and the files below docs/ that they show."""
    run = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "docs"]
    listed = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in dict.fromkeys(listed) if not name.startswith(LEFT_OUT) and (ROOT / name).is_file()]


def registered(registry: CollectorRegistry) -> Iterator[Metric]:
    """The project's own metrics of a registry."""
    collectors: dict[Any, list[str]] = registry._collector_to_names  # noqa: SLF001 - the registry gives no names of labels
    for collector in collectors:
        families: list[Family] = list(getattr(collector, "describe", list)())
        labels = getattr(collector, "_labelnames", None) or getattr(collector, "_labels", ())
        for family in families:
            name = f"{family.name}_total" if family.type == "counter" else family.name
            if not name.startswith(("process_", "python_")):
                yield Metric(name, family.type, tuple(labels), family.documentation)


def generated_pages() -> dict[str, str]:
    """The pages written from code, by their path."""
    fields = {
        f"docs/api/{name}.md": fields_page(yaml.load((ROOT / "crds" / file).read_text(), yaml.CSafeLoader))
        for name, file in CRDS.items()
    }
    metrics = {"Operator": registered(REGISTRY), "Autoscaler": registered(SidecarMetrics().registry)}
    return {
        **fields,
        "docs/api/commands.md": commands_page(command, sorted(COMMANDS)),
        "docs/api/metrics.md": metrics_page(metrics),
    }


def stage(folder: Path, source: str) -> int:
    """Write all pages into the folder; returns their number."""
    shutil.rmtree(folder, ignore_errors=True)
    files = listed_files()
    on_site: Callable[[str], bool] = {
        *files,
        *(f"docs/api/{name}.md" for name in ("raycluster", "trainingjob", "commands", "metrics")),
    }.__contains__
    generated = generated_pages()
    for name in files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            target.write_text(relink((ROOT / name).read_text(), name, on_site, source))
        else:
            shutil.copyfile(ROOT / name, target)
    for name, text in generated.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return sum(name.endswith(".md") for name in files) + len(generated)


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
