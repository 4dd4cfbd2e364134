"""Check of the relative links in all Markdown files of the repository.

Prints each relative link whose file, heading or `<a id="…">` does not exist; the exit code is 1 if there are any. Links
with a scheme are not followed. Called by `make verify`.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Names of the headings of a page, as GitHub derives them, and of its explicit anchors."""
    found: set[str] = set(ANCHOR.findall(text))
    seen: Counter[str] = Counter()
    for title in HEADING.findall(FENCED.sub("", text)):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(page: Path) -> Iterator[str]:
    """Messages about the broken links of a page."""
    text = CODE.sub("", FENCED.sub("", page.read_text()))
    for target in LINK.findall(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            yield f"{target}: no such heading or anchor"


def pages() -> list[Path]:
    """All Markdown files of the repository, also those not yet committed."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [page for line in listed.splitlines() if (page := ROOT / line).is_file()]


def main() -> int:
    """Print the broken links; returns 1 if there are any."""
    found = [f"{page.relative_to(ROOT)}: {fault}" for page in pages() for fault in broken_links(page)]
    print("\n".join(found) or f"links: all of {len(pages())} pages resolve")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
