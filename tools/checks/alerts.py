"""Check of the chart's alert rules with promtool: their syntax, and a case for each alert.

`promtool check rules` reads helm/raytide/rules, `promtool test rules` runs tests/alerts. Where there is no promtool and no Debian
to unpack one from, it says so in one line and ends with 0, or with --require with 1. Called by `make chart`.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import promtool
from debian_packages import DebianError

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "helm" / "raytide" / "rules"
CASES = ROOT / "tests" / "alerts"


def commands() -> list[list[str | Path]]:
    """The arguments of the two calls of promtool."""
    return [
        ["check", "rules", "--lint=all", "--lint-fatal", *sorted(RULES.glob("*.yaml"))],
        ["test", "rules", *sorted(CASES.glob("*.yaml"))],
    ]


def main() -> int:
    """Run both; 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--require", action="store_true", help="fail where there is no promtool")
    is_required = parser.parse_args().require
    try:
        program = promtool.provide()
    except (DebianError, OSError) as error:
        print(f"alert rules: not run ({error}; or put promtool on PATH)", file=sys.stderr)
        return 1 if is_required else 0
    codes = [subprocess.run([program, *words], check=False).returncode for words in commands()]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
