"""Check of the alerts and dashboards of the chart with promtool: the syntax of all expressions, and a test for each alert.

`promtool check rules` reads helm/raytide/rules, and the expressions of helm/raytide/dashboards as recording rules; `promtool test
rules` runs tests/alerts, and a test with series of the operator's metrics from a simulated hour. Without promtool, and without
Debian packages to unpack it from, it prints "not run" with the reason, and the exit code is 0, with --require 1. Called by
`make chart`.
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
    """All expressions of a dashboard, with 5m in place of Grafana's `$__rate_interval`."""
    for panel in json.loads(dashboard.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m")


def recording_rules() -> str:
    """The expressions of all dashboards as a rule file, in JSON, which is valid YAML."""
    groups = []
    for path in sorted(DASHBOARDS.glob("*.json")):
        rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions(path))]
        groups.append({"name": path.stem, "rules": rules})
    return json.dumps({"groups": groups})


def recorded_case() -> str:
    """The test with recorded series, as a file for promtool."""
    program = ROOT / "tests" / "simulation" / "recorded_series.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=True).stdout


def commands(panels: Path, recorded: Path) -> list[list[str | Path]]:
    """Arguments of the calls of promtool; `panels` has the expressions of the dashboards, `recorded` the recorded test."""
    return [
        ["check", "rules", "--lint=all", "--lint-fatal", *sorted(RULES.glob("*.yaml"))],
        ["check", "rules", "--lint=none", panels],
        ["test", "rules", *sorted(CASES.glob("*.yaml")), recorded],
    ]


def main() -> int:
    """Run promtool; returns 1 if a call fails."""
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
