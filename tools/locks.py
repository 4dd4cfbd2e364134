"""Which exact versions does the project use?

Resolves pyproject.toml into `requirements/*.txt`, with hashes and without any address, so that every machine uses its
own registry. Called by `make locks`; the result is committed.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"
PLAIN = ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--universal"]


def compile_lock(source: str, target: str, *options: str, stdin: str | None = None) -> None:
    """One lock file from one source."""
    command = [str(UV), "pip", "compile", "--quiet", *PLAIN, "--python-version", "3.11", *options, source]
    subprocess.run([*command, "-o", f"requirements/{target}"], cwd=ROOT, check=True, input=stdin, text=True)


if __name__ == "__main__":
    compile_lock("pyproject.toml", "runtime.txt")
    compile_lock("pyproject.toml", "dev.txt", "--extra", "sandbox", "--extra", "dev")
    compile_lock("-", "build.txt", "--constraint", "requirements/dev.txt", stdin="hatchling\n")
    compile_lock("-", "uv.txt", stdin="uv\n")
