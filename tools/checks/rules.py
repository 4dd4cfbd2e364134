"""Check of the rule ids that code and tests cite.

The pages in docs/reference give each rule an anchor (`<a id="RC-POD-21"></a>**RC:POD-21**`), and each numbered section
too (`<a id="RC-5.4"></a>` before its heading). The check fails if a file cites an id that has no anchor, and prints the
file and the line. It also fails if a rule is open that docs/reference/open-rules.txt does not list: a rule is open
while no test and no benchmark cites it. `python tools/checks/rules.py` writes that list, with `--check` it changes nothing.

Recognized are `RC:POD-21`, `TJ 7.12`, `RC §5.4`, `TJ §3 rows 6 and 7`, `TJ §7 item 4`, `RM §2.3 S13`, ranges
(`RC:MH-1..9`, `RM:F1–F7`, `AS:S-1 to AS:S-4`), lists (`RM:I1, I4`), decisions (`D6`), and f-strings (`f"RC:{rule}"`), for which all
literals of the file that are rules of the prefix count. A benchmark whose docstring begins with `P9B:` cites `PF:P9B`. Called by
`make verify`.
"""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
OPEN_RULES = REFERENCE / "open-rules.txt"
CITING = ("operator", "sandbox", "tests", "tools", "bench", "e2e")
PROVING = ("tests/", "bench/", "e2e/")
NOT_READ = {"tools/checks/rules.py", "tests/unit/tools/test_rules.py", "tools/generators/kubernetes-types.json"}

PREFIX = r"(?P<prefix>RC|AS|TJ|SC|RM|PF|SE|FD)"
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
ANCHORED = re.compile(r'(?:<a id="[^"]+"></a>\s*)+\*\*(?P<rules>[^*]+)\*\*')
CITED = re.compile(
    rf"\b{PREFIX}(?:"
    r":? ?§ ?(?P<section>\d+(?:\.\d+)*)"
    r"|:(?P<id>[A-Z0-9]\w*(?:[.-]\w+)*)"
    r"| (?P<spaced>\d+\.\d+|[A-Z]{1,4}-?\d+)\b)"
)
DECISION = re.compile(r"(?<![\w:.-])D\d{1,2}\b(?![.-]\w)")
COMPUTED = re.compile(rf"\bf[\"']{PREFIX}:\{{")
TITLE = re.compile(r'"""(?P<figures>[A-Z][A-Z0-9_]*(?: and [A-Z][A-Z0-9_]*)*): ')
LITERAL = re.compile(r"[\"']([A-Z]+-?\d+[a-z]?)[\"' ]")

MARKER = re.compile(r"\bmark\.rule\(([^)]*)\)")
ARGUMENT = re.compile(r"(?<!f)\"([^\"]*)\"")

JOIN = r"(?P<join>\.\.|\s*–\s*|\s+to\s+|,\s+and\s+|,\s*|\s+and\s+|\s+or\s+)"
NEXT_SECTION = re.compile(rf"\)?{JOIN}(?:§ ?|(?<=–))(?P<number>\d+(?:\.\d+)*)")
ITEMS = re.compile(r"\s+(?:rows?|items?)\s+(?P<number>\d+[a-z]?)\b")
NEXT_ITEM = re.compile(rf"{JOIN}(?P<number>\d+[a-z]?)\b(?!\.\d)")
OF_SECTION = re.compile(r"(?:,?\s+|\s*\()(?P<id>(?!D\d)[A-Z]{1,4}-?\d+)\b")
NEXT_ID = re.compile(rf"{JOIN}(?:(?P<again>[A-Z][A-Z]):)?(?P<id>[A-Z-]*\d+(?:\.\d+)?[a-z]?|[A-Z])\b")
NUMBERED = re.compile(r"(?P<stem>.*?)(?P<number>\d*)(?P<letter>[a-z]?)")


@dataclass(frozen=True)
class Citation:
    """Citation of a rule or section; `is_literal` is false for a literal that counts because of an f-string."""

    rule: str
    line: int
    is_literal: bool = True

    @property
    def key(self) -> str:
        """Normalized id, by which it is looked up."""
        return key_of(self.rule)


@dataclass
class Reference:
    """Anchors and rules of docs/reference, and errors in them."""

    anchors: set[str] = field(default_factory=set)
    rules: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def resolves(self, key: str) -> bool:
        """Whether the key has an anchor; for a lettered row such as 6c, that of row 6 is enough."""
        return key in self.anchors or re.sub(r"(?<=\d)[a-z]$", "", key) in self.anchors


def key_of(rule: str) -> str:
    """Normalized id, equal for `TJ:3.21`, `TJ:3-21` and the anchors `TJ-3.21` and `TJ-3-row-21`."""
    return re.sub(r"[:.\s-]+(?:(?:row|item)-)?", "-", rule)


def reference_of(pages: Mapping[str, str]) -> Reference:
    """The reference in these pages, given as texts by their names."""
    found, seen, places = Reference(), set[str](), dict[str, str]()
    for name, text in pages.items():
        for line, words in enumerate(text.splitlines(), 1):
            for anchor in ANCHOR.findall(words):
                if anchor in seen:
                    found.faults.append(f"{name}:{line}: {anchor} is an anchor already")
                seen.add(anchor)
                found.anchors.add(key_of(anchor))
            for match in ANCHORED.finditer(words):
                if "§" not in match["rules"]:  # steps of a section, such as AS §2.4 FILL 1, are not rules
                    places |= {rule.rule: f"{name}:{line}" for rule in citations(match["rules"])}
    for rule, place in places.items():
        found.rules[key_of(rule)] = rule
        if key_of(rule) not in found.anchors:
            found.faults.append(f"{place}: {rule} has no anchor")
    return found


def citations(text: str) -> Iterator[Citation]:
    """Citations in the text of a file, by form."""
    for match in CITED.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        prefix = match["prefix"]
        if match["section"]:
            ids = _sections(text, match.end(), match["section"])
        else:
            ids = iter(_series(text, match.end(), match["id"] or match["spaced"], prefix)[0])
        for rule in ids:
            yield Citation(f"{prefix}:{rule}", line)
    for match in DECISION.finditer(text):
        yield Citation(match.group(), text.count("\n", 0, match.start()) + 1)
    for prefix in sorted({match["prefix"] for match in COMPUTED.finditer(text)}):
        for match in LITERAL.finditer(text):
            yield Citation(f"{prefix}:{match[1]}", text.count("\n", 0, match.start()) + 1, is_literal=False)


def without_prefix(text: str) -> Iterator[Citation]:
    """Arguments of rule markers that are neither `PREFIX:id` nor a decision."""
    for marker in MARKER.finditer(text):
        for argument in ARGUMENT.finditer(marker[1]):
            if not CITED.match(argument[1]) and not DECISION.fullmatch(argument[1]):
                yield Citation(argument[1], text.count("\n", 0, marker.start(1) + argument.start()) + 1)


def _sections(text: str, end: int, section: str) -> Iterator[str]:
    """A section and those in a list or range after it, each with its rows, items or rules."""
    yield section
    while True:
        if items := ITEMS.match(text, end):
            end, last = items.end(), items["number"]
            yield f"{section}.{last}"
            while more := NEXT_ITEM.match(text, end):
                yield from (f"{section}.{row}" for row in _following(last, more))
                end, last = more.end(), more["number"]
        while rule := OF_SECTION.match(text, end):
            ids, end = _series(text, rule.end(), rule["id"], "")
            yield from ids
        following = NEXT_SECTION.match(text, end)
        if not following:
            return
        yield from _following(section, following)
        end, section = following.end(), following["number"]


def _series(text: str, end: int, first: str, prefix: str) -> tuple[list[str], int]:
    """An id and those of the same series in a list or range after it, and the position of their end."""
    found = [first]
    while (following := NEXT_ID.match(text, end)) and following["again"] in {None, prefix}:
        number, stem = following["id"], _stem(first)
        letters = _stem(number)
        is_same = stem.endswith(letters) if letters else _is_range(following) or number.isalpha()
        if not is_same or number.isalpha() != first[-1].isupper():
            break
        found += _following(first, following, stem + number[len(letters) :])
        end, first = following.end(), found[-1]
    return found, end


def _is_range(match: re.Match[str]) -> bool:
    """Whether the word between two ids denotes a range."""
    return match["join"].strip() in {"..", "–", "to"}


def _stem(rule: str) -> str:
    """The id without its last number, or without its last letter if it has no number: `RC-B` of `RC-B4`."""
    match = NUMBERED.fullmatch(rule)
    return match["stem"] if match and match["number"] else rule[:-1]


def _following(first: str, match: re.Match[str], last: str = "") -> list[str]:
    """Ids after `first` up to `last` for a range, else only `last`."""
    last = last or match["number"]
    one, other = NUMBERED.fullmatch(first), NUMBERED.fullmatch(last)
    if _is_range(match) and one and other and one["number"] and one["stem"] == other["stem"]:
        return [f"{one['stem']}{number}" for number in range(int(one["number"]) + 1, int(other["number"]) + 1)]
    return [last]


def unresolved(files: Mapping[str, str], reference: Reference) -> list[str]:
    """Faults as `file:line: id`, one per id and line."""
    faults: dict[str, None] = {}
    for name, text in files.items():
        for citation in citations(text):
            if citation.is_literal and not reference.resolves(citation.key):
                faults[f"{name}:{citation.line}: {citation.rule} is not in docs/reference"] = None
        for citation in without_prefix(text):
            faults[f"{name}:{citation.line}: {citation.rule} names no prefix"] = None
    return list(faults)


def open_rules(files: Mapping[str, str], reference: Reference) -> list[str]:
    """Rules that no test and no benchmark cites, sorted by prefix and number."""
    cited = {c.key for name, text in files.items() if name.startswith(PROVING) for c in citations(text)}
    titles = (TITLE.match(text) for name, text in files.items() if name.startswith("bench/"))
    cited |= {key_of(f"PF:{figure}") for title in titles if title for figure in title["figures"].split(" and ")}
    return sorted((rule for key, rule in reference.rules.items() if key not in cited), key=_by_number)


def _by_number(rule: str) -> list[tuple[int, str]]:
    """Sort key with which S2 is before S10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", rule)]


def repository_files() -> dict[str, str]:
    """Texts of the files that can cite rules, by their paths in the repository."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", *CITING]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found: dict[str, str] = {}
    for name in listed:
        path = ROOT / name
        if name in NOT_READ or not path.is_file():
            continue
        with contextlib.suppress(UnicodeDecodeError):  # a picture or an archive
            found[name] = path.read_text()
    return found


def main() -> int:
    """Print errors and the number of open rules; returns 1 if there are errors or open rules that are not listed."""
    files = repository_files()
    reference = reference_of({str(page.relative_to(ROOT)): page.read_text() for page in sorted(REFERENCE.glob("*.md"))})
    faults = [*reference.faults, *unresolved(files, reference)]
    now_open = open_rules(files, reference)
    if "--check" not in sys.argv[1:]:
        OPEN_RULES.write_text("".join(f"{rule}\n" for rule in now_open))
    listed = OPEN_RULES.read_text().split() if OPEN_RULES.exists() else []
    print("\n".join([*faults, f"rules: {len(now_open)} of {len(reference.rules)} open, {len(faults)} faults"]))
    unlisted = [rule for rule in now_open if rule not in listed]
    if unlisted:
        print(f"no test cites, and docs/reference/open-rules.txt does not list: {', '.join(unlisted)}")
    return 1 if faults or unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
