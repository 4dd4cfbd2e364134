"""Write the table of security checks in SECURITY.md from tools/checks/security_checks.toml, or check that it is current.

`python tools/generators/security.py` writes; with `--check` it changes nothing and fails if the table differs, if a check of
docs/reference/security-checklist.md has no row, if a proof is no make target and no file, if a test that proves a check does
not cite it, or if more than three checks are refused.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "tools" / "checks" / "security_checks.toml"
CHECKLIST = ROOT / "docs" / "reference" / "security-checklist.md"
SECURITY = ROOT / "SECURITY.md"
BEGIN, END = "<!-- checks: written by tools/generators/security.py -->\n", "<!-- end of checks -->\n"
STATES = ("met", "refused")
MOST_REFUSED = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One row."""

    id: str
    what: str
    state: str
    proof: Sequence[str]
    note: str = ""
    open: str = ""
    """What is not done, and why; of a refused check."""


def read_checks(path: Path = CHECKS) -> list[Check]:
    """All rows, in the order of the file."""
    return [Check(**row) for row in tomllib.loads(path.read_text())["check"]]


def build_table(checks: Sequence[Check]) -> str:
    """The table, and the sum above it."""
    refused = [check.id for check in checks if check.state == "refused"]
    head = (
        f"{len(checks) - len(refused)} of {len(checks)} are met, {len(refused)} are refused: {', '.join(refused)}.\n\n"
    )
    return head + "| | check | state | proof |\n|---|---|---|---|\n" + "".join(map(_row, checks))


def _row(check: Check) -> str:
    remark = check.open or check.note
    state = f"{check.state}: {remark}" if remark else check.state
    link = f"[{check.id}](docs/reference/security-checklist.md#SE-{check.id})"
    return f"| {link} | {check.what} | {state} | {', '.join(map(_shown, check.proof))} |\n"


def _shown(proof: str) -> str:
    return f"`{proof}`" if proof.startswith("make ") else f"[{Path(proof).name}]({proof})"


def errors(checks: Sequence[Check], texts: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the rows; `texts` has the contents of the checklist, the Makefile and every proof that is a file."""
    expected = re.findall(r"\*\*SE:(C\d+)\*\*", texts["checklist"])
    if [check.id for check in checks] != expected:
        yield f"the rows are not those of {CHECKLIST.name}: {', '.join(expected)}"
    if (refused := sum(check.state == "refused" for check in checks)) > MOST_REFUSED:
        yield f"{refused} checks are refused, at most {MOST_REFUSED} may be"
    for check in checks:
        if check.state not in STATES or (check.state == "refused") != bool(check.open):
            yield f"{check.id}: a refused check has `open`, and no other one"
        if not check.proof:
            yield f"{check.id}: no proof"
        for proof in check.proof:
            yield from _proof_errors(check, proof, texts)


def _proof_errors(check: Check, proof: str, texts: Mapping[str, str]) -> Iterator[str]:
    if target := proof.removeprefix("make ") if proof.startswith("make ") else "":
        if not re.search(rf"(?m)^{re.escape(target)}:", texts["Makefile"]):
            yield f"{check.id}: there is no make {target}"
    elif proof not in texts:
        yield f"{check.id}: there is no file {proof}"
    elif proof.startswith(("tests/", "e2e/")) and not re.search(rf"\bSE:{check.id}\b", texts[proof]):
        yield f"{check.id}: {proof} does not cite SE:{check.id}"


def read_texts(checks: Sequence[Check]) -> dict[str, str]:
    """What `errors` needs."""
    texts = {"checklist": CHECKLIST.read_text(), "SECURITY": SECURITY.read_text()}
    texts["Makefile"] = (ROOT / "Makefile").read_text()
    files = {proof for check in checks for proof in check.proof if not proof.startswith("make ")}
    return texts | {name: (ROOT / name).read_text() for name in files if (ROOT / name).is_file()}


def written(text: str, table: str) -> str:
    """SECURITY.md with the table; raises SystemExit if its place is not there once."""
    new, count = re.subn(
        re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: BEGIN + table + END, text, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"expected one place for the checks in {SECURITY.name}, found {count}")
    return new


def main() -> None:
    """Write, or with `--check` compare."""
    checks = read_checks()
    if found := list(errors(checks, read_texts(checks))):
        sys.exit("\n".join(found))
    text = SECURITY.read_text()
    new = written(text, build_table(checks))
    if "--check" not in sys.argv[1:]:
        SECURITY.write_text(new)
    elif new != text:
        sys.exit(f"{SECURITY.name}: the table of checks is not current, run `make checks`")


if __name__ == "__main__":
    main()
