"""Which exact versions does the project use?

Resolves pyproject.toml into `requirements/*.txt`, with hashes and without any address, so that every machine uses its
own registry. Called by `make locks`; the result is committed.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"
PADDLE = "paddlepaddle==2.6.2\nprotobuf==4.25.3\nnumpy<2\nsetuptools<80\n"
"""An environment of its own (tools/builders/paddle_env.py): the last wheel with parameter servers, and what it runs with."""

PLAIN = ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]


def compile_lock(
    source: str, target: str, *options: str, stdin: str | None = None, machines: str = "--universal"
) -> None:
    """One lock file from one source."""
    command = [str(UV), "pip", "compile", "--quiet", *PLAIN, machines, "--python-version", "3.11", *options, source]
    subprocess.run([*command, "-o", f"requirements/{target}"], cwd=ROOT, check=True, input=stdin, text=True)


if __name__ == "__main__":
    compile_lock("pyproject.toml", "runtime.txt")
    compile_lock("pyproject.toml", "dev.txt", "--extra", "dev", "sandbox/pyproject.toml")
    compile_lock("-", "build.txt", "--constraint", "requirements/dev.txt", stdin="hatchling\n")
    compile_lock("-", "uv.txt", stdin="uv\n")
    compile_lock("-", "paddle.txt", stdin=PADDLE, machines="--python-platform=x86_64-unknown-linux-gnu")
