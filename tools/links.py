"""Does every link in the documentation lead somewhere?

Reads all Markdown files of the repository and prints each relative link whose file, or whose heading, is not there; the
exit code says whether there were any. It asks nobody on the network: links with a scheme are left alone. Called by
`make verify`.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The names GitHub gives to the headings of a page."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for title in HEADING.findall(FENCED.sub("", text)):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(page: Path) -> Iterator[str]:
    """What is wrong with each link of one page."""
    text = CODE.sub("", FENCED.sub("", page.read_text()))
    for target in LINK.findall(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists():
            yield f"{target}: no such file"
        elif anchor and goal.suffix == ".md" and anchor not in anchors(goal.read_text()):
            yield f"{target}: no such heading"


def pages() -> list[Path]:
    """Every Markdown file that is, or is about to be, part of the repository."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [page for line in listed.splitlines() if (page := ROOT / line).is_file()]


def main() -> int:
    """Print what is broken; 1 if anything is."""
    found = [f"{page.relative_to(ROOT)}: {fault}" for page in pages() for fault in broken_links(page)]
    print("\n".join(found) or f"links: all of {len(pages())} pages lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
