"""The table of the checks C1 to C25 in SECURITY.md."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def load_generator():
    spec = importlib.util.spec_from_file_location("security_generator", ROOT / "tools/generators/security.py")
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    return generator


generator = load_generator()
CHECKS = generator.read_checks()
TEXTS = generator.read_texts(CHECKS)


def test_the_table_is_current_and_has_25_rows():
    assert generator.written(TEXTS["SECURITY"], generator.build_table(CHECKS)) == TEXTS["SECURITY"]
    assert [check.id for check in CHECKS] == [f"C{number}" for number in range(1, 26)]


def test_nothing_is_wrong_with_it():
    assert list(generator.errors(CHECKS, TEXTS)) == []


def changed(index, **fields):
    checks = list(CHECKS)
    checks[index] = replace(checks[index], **fields)
    return checks


MET = next(index for index, check in enumerate(CHECKS) if check.state == "met")


@pytest.mark.parametrize(
    ("checks", "error"),
    [
        pytest.param(CHECKS[1:], "the rows are not those of", id="a row is missing"),
        pytest.param(changed(MET, state="refused"), "has `open`", id="refused without a reason"),
        pytest.param(changed(MET, open="later"), "has `open`", id="met and open"),
        pytest.param(changed(MET, proof=[]), "no proof", id="no proof"),
        pytest.param(changed(MET, proof=["make nothing"]), "there is no make nothing", id="no such target"),
        pytest.param(changed(MET, proof=["tests/none.py"]), "there is no file tests/none.py", id="no such file"),
        pytest.param(
            changed(MET, proof=[CHECKS[5].proof[0]]), "does not cite SE:C1", id="a test that does not cite the check"
        ),
        pytest.param(
            [replace(check, state="refused", open="x") for check in CHECKS], "at most 3 may be", id="all are refused"
        ),
    ],
)
def test_a_wrong_row_is_an_error(checks, error):
    assert any(error in each for each in generator.errors(checks, TEXTS))


def test_a_refused_check_has_its_reason_in_the_table():
    row = next(row for row in generator.build_table(CHECKS).splitlines() if "#SE-C25)" in row)
    assert "refused: " in row
    assert "plain HTTP" in row
