"""Which acceptance scenarios run in the same process of two."""

from pathlib import Path

from acceptance import conftest

SCENARIOS = Path(conftest.__file__).parent


def test_each_busy_scenario_is_a_file_and_the_others_are_shared():
    files = {path.name for path in SCENARIOS.glob("test_*.py")}
    assert files > conftest.BUSY
    split = conftest.OneProcessForBusyScenarios._split_scope
    scopes = [split(None, f"tests/acceptance/{file}::test_it[one]") for file in files]
    assert scopes.count("busy") == len(conftest.BUSY)
    assert len(set(scopes)) == len(files) - len(conftest.BUSY) + 1
