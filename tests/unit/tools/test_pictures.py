"""Pictures of a real run: not drawn when a process of the run ended."""

from types import SimpleNamespace

import pytest

from ui_pictures import require_running


@pytest.mark.parametrize(
    ("text", "last"),
    [("started\nlost the Lease\n\n", "lost the Lease"), ("", "its log is empty")],
    ids=["log", "empty"],
)
def test_an_operator_that_ended_during_the_run_is_an_error_with_its_last_line(tmp_path, text, last):
    log = tmp_path / "operator.log"
    log.write_text(text)
    with pytest.raises(SystemExit, match=f"^operator ended with exit code 3 during the run: {last}$"):
        require_running(SimpleNamespace(returncode=3), log)


def test_an_operator_that_runs_is_none(tmp_path):
    require_running(SimpleNamespace(returncode=None), tmp_path / "operator.log")
