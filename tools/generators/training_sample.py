"""Write `samples/trainingjob.yaml` from samples/training: the job, and a ConfigMap with its two programs.

Programs are edited and tested as programs, and users apply one file. Called by `make generate`; with --check it compares the file
and fails if it differs, for `make verify`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "samples" / "training"
TARGET = ROOT / "samples" / "trainingjob.yaml"
PROGRAMS = ("master.py", "train.py")
CONFIG_MAP = """\
---
# Made by tools/generators/training_sample.py from samples/training/: edit the programs there.
apiVersion: v1
kind: ConfigMap
metadata:
  name: training-program
data:
"""


def build_sample() -> str:
    """Text of the file."""
    job = (SOURCES / "trainingjob.yaml").read_text()
    return job + CONFIG_MAP + "".join(f"  {name}: |\n{_indented(SOURCES / name)}" for name in PROGRAMS)


def _indented(program: Path) -> str:
    lines = program.read_text().splitlines()
    return "".join(f"    {line}\n" if line else "\n" for line in lines)


def main() -> int:
    """Write the file, or with `--check` compare it; returns the exit code."""
    wanted = build_sample()
    if sys.argv[1:] == ["--check"]:
        is_same = TARGET.exists() and TARGET.read_text() == wanted
        print(f"samples/trainingjob.yaml is {'current' if is_same else 'not current; run `make generate`'}")
        return 0 if is_same else 1
    TARGET.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
