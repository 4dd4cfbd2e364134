"""Check of the chart's alerts and dashboards with promtool: the syntax of all expressions, and a case for each alert.

`promtool check rules` reads helm/raytide/rules, and the expressions of helm/raytide/dashboards as recording rules; `promtool test
rules` runs tests/alerts, and a case with series that the operator's registry had in a simulated hour. Where there is no promtool
and no Debian to unpack one from, it says so in one line and ends with 0, or with --require with 1. Called by `make chart`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import promtool
from debian_packages import DebianError

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "helm" / "raytide" / "rules"
DASHBOARDS = ROOT / "helm" / "raytide" / "dashboards"
CASES = ROOT / "tests" / "alerts"


def expressions(dashboard: Path) -> Iterator[str]:
    """All expressions of a dashboard, with an interval for Grafana's."""
    for panel in json.loads(dashboard.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m")


def recording_rules() -> str:
    """The expressions of all dashboards as a rule file, in JSON, which YAML contains."""
    groups = [
        {
            "name": path.stem,
            "rules": [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions(path))],
        }
        for path in sorted(DASHBOARDS.glob("*.json"))
    ]
    return json.dumps({"groups": groups})


def recorded_case() -> str:
    """The case with recorded series as a file for promtool."""
    program = ROOT / "tests" / "simulation" / "recorded_series.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=True).stdout


def commands(panels: Path, recorded: Path) -> list[list[str | Path]]:
    """The arguments of the calls of promtool; `panels` has the expressions of the dashboards, `recorded` a case."""
    return [
        ["check", "rules", "--lint=all", "--lint-fatal", *sorted(RULES.glob("*.yaml"))],
        ["check", "rules", "--lint=none", panels],
        ["test", "rules", *sorted(CASES.glob("*.yaml")), recorded],
    ]


def main() -> int:
    """Run all; 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--require", action="store_true", help="fail where there is no promtool")
    is_required = parser.parse_args().require
    try:
        program = promtool.provide()
    except (DebianError, OSError) as error:
        print(f"alerts and dashboards: not run ({error}; or put promtool on PATH)", file=sys.stderr)
        return 1 if is_required else 0
    with tempfile.TemporaryDirectory() as folder:
        panels, recorded = Path(folder, "dashboards.yaml"), Path(folder, "recorded.yaml")
        panels.write_text(recording_rules())
        recorded.write_text(recorded_case())
        codes = [subprocess.run([program, *words], check=False).returncode for words in commands(panels, recorded)]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
