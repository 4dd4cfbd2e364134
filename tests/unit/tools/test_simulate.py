"""A level that runs nothing fails."""

import sys

from simulation import simulate


def test_a_simulation_without_runs_fails(monkeypatch, capsys):
    none = ["--histories=0", "--launches=0", "--job-histories=0", "--scenarios=none", "--processes=1"]
    monkeypatch.setattr(sys, "argv", ["simulate", *none])
    assert simulate.main() == 1
    assert "nothing ran" in capsys.readouterr().out
