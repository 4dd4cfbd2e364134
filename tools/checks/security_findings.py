"""Findings of the scanners, and the list of those that are accepted, each with its reason.

`split` divides findings into new and accepted ones and returns the entries of the list that no finding needs. An entry
names scanner, rule and place (both may have `*`), and how many findings it covers if that is fixed: one more is then a new
finding. Pure but for reading the list. Used by security.py.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

LIST = Path(__file__).with_name("security_accepted.toml")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One problem that a scanner reports."""

    scanner: str
    rule: str
    place: str
    """File of the repository, or rendering and object."""
    text: str = ""

    def __str__(self) -> str:
        return f"{self.scanner} {self.rule} {self.place}: {self.text}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the list of accepted findings."""

    scanner: str
    rule: str
    place: str
    reason: str
    count: int | None = None
    """Number of findings; None for any."""

    def covers(self, finding: Finding) -> bool:
        """Whether scanner, rule and place are those of the finding."""
        return (
            self.scanner == finding.scanner
            and fnmatchcase(finding.rule, self.rule)
            and fnmatchcase(finding.place, self.place)
        )


@dataclass(frozen=True, slots=True)
class Split:
    """Findings by whether the list has them."""

    new: list[Finding]
    accepted: list[Finding]
    unused: list[Entry]


def read_list(path: Path = LIST) -> list[Entry]:
    """The list; raises TypeError for an entry without a reason or with an unknown field."""
    return [Entry(**entry) for entry in tomllib.loads(path.read_text())["accepted"]]


def split(findings: Iterable[Finding], entries: Sequence[Entry]) -> Split:
    """Divide the findings; a finding counts for the first entry that covers it."""
    found = Split([], [], [])
    used: Counter[int] = Counter()
    for finding in sorted(findings):
        index = next((i for i, entry in enumerate(entries) if entry.covers(finding)), None)
        if index is None:
            found.new.append(finding)
            continue
        used[index] += 1
        count = entries[index].count
        (found.accepted if count is None or used[index] <= count else found.new).append(finding)
    found.unused.extend(entry for i, entry in enumerate(entries) if used[i] < (entry.count or 1))
    return found
