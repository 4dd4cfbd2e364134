"""Known vulnerabilities of the locked packages, from a stored advisory database.

`compare` matches every package of the locks in requirements/ with OSV records (YAML or JSON, as in pypa/advisory-database) and
returns the advisories that apply, with the age of the newest record. No network is used: `make advisories` clones the database into the
cache folder, and `ADVISORIES=dir` names another one. Where there is none, `compare` raises DatabaseMissingError; pip-audit alone would then
skip each package and report success. Used by security.py; SE:C14.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from environments import cache_folder
from security_findings import Finding

ROOT = Path(__file__).resolve().parents[2]
DATABASE = "https://github.com/pypa/advisory-database"
LOCKED = re.compile(r"(?m)^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)")
Json = dict[str, Any]


class DatabaseMissingError(Exception):
    """There is no advisory database on this machine."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Result of a comparison."""

    packages: int
    records: int
    newest: datetime
    """When the newest record was changed: what was published later is unknown."""
    findings: list[Finding]


def find_database(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with the records; raises DatabaseMissingError."""
    folder = Path(environ.get("ADVISORIES") or cache_folder("advisories", environ))
    if not (folder / "vulns").is_dir():
        raise DatabaseMissingError(
            f"no advisory database in {folder}: `make advisories` clones it, or set ADVISORIES to a clone of {DATABASE}"
        )
    return folder


def locked_packages(locks: Iterable[Path]) -> dict[str, set[tuple[str, str]]]:
    """For each package the pairs of version and lock."""
    found: dict[str, set[tuple[str, str]]] = {}
    for lock in locks:
        for name, version in LOCKED.findall(lock.read_text()):
            found.setdefault(normalized(name), set()).add((version, lock.name))
    return found


def normalized(name: str) -> str:
    """A package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def compare(database: Path, locks: Iterable[Path]) -> Compared:
    """Match all locks with all records; raises DatabaseMissingError if the database has no record."""
    packages = locked_packages(locks)
    findings, times = [], []
    for record in read_records(database):
        times.append(datetime.fromisoformat(str(record["modified"])))
        findings.extend(_matches(record, packages))
    if not times:
        raise DatabaseMissingError(f"{database / 'vulns'} has no record")
    newest = max(time if time.tzinfo else time.replace(tzinfo=UTC) for time in times)
    return Compared(len(packages), len(times), newest, findings)


def read_records(database: Path) -> Iterator[Json]:
    """Every record that was not withdrawn."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted((database / "vulns").rglob("*")):
        if path.suffix not in (".yaml", ".yml", ".json"):
            continue
        text = path.read_text()
        record = json.loads(text) if path.suffix == ".json" else yaml.load(text, loader)  # noqa: S506 - a safe loader
        if not record.get("withdrawn"):
            yield record


def _matches(record: Json, packages: Mapping[str, set[tuple[str, str]]]) -> Iterator[Finding]:
    for affected in record.get("affected", []):
        name = normalized(affected.get("package", {}).get("name", ""))
        for version, lock in sorted(packages.get(name, ())):
            if is_affected(version, affected):
                text = f"{name} {version}: {record.get('summary') or ', '.join(record.get('aliases', []))}"
                yield Finding("advisories", record["id"], f"requirements/{lock}", text)


def is_affected(version: str, affected: Json) -> bool:
    """Whether the version is listed, or lies in one of the ranges."""
    if version in affected.get("versions", []):
        return True
    try:
        number = Version(version)
    except InvalidVersion:
        return False
    ranges = (r for r in affected.get("ranges", []) if r.get("type") == "ECOSYSTEM")
    return any(_is_in_range(number, range_["events"]) for range_ in ranges)


def _is_in_range(version: Version, events: Iterable[Mapping[str, str]]) -> bool:
    is_inside = False
    for event in events:
        if "introduced" in event and (event["introduced"] == "0" or version >= Version(event["introduced"])):
            is_inside = True
        if "fixed" in event and version >= Version(event["fixed"]):
            is_inside = False
        if "last_affected" in event and version > Version(event["last_affected"]):
            is_inside = False
    return is_inside


def clone() -> int:
    """Clone the database into the cache folder, or update the clone; git's exit code."""
    folder = cache_folder("advisories")
    if (folder / ".git").is_dir():
        return subprocess.run(["git", "-C", folder, "pull", "--quiet", "--ff-only"], check=False).returncode
    folder.parent.mkdir(parents=True, exist_ok=True)
    return subprocess.run(["git", "clone", "--quiet", "--depth", "1", DATABASE, folder], check=False).returncode


if __name__ == "__main__":
    sys.exit(clone())
