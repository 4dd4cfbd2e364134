"""Benches run by hand: a name that they import and the product has lost is noticed here."""

import os
import subprocess
import sys

from support.distributions import ROOT

BENCHES = sorted(path.stem for path in (ROOT / "bench").glob("*.py"))
FOLDERS = ("bench", "tests", "tools/builders", "tools/checks")
"""As in the Makefile; a process of their own, because the builders have a module of the same name as one of the benches."""


def test_each_bench_can_be_imported():
    path = os.pathsep.join(str(ROOT / folder) for folder in FOLDERS)
    code = f"import {', '.join(BENCHES)}"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True)
