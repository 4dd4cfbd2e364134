"""Tests that failed are run once more, alone, when everything else of their level has ended.

For levels that wait for real processes, where a deadline can pass because the machine did something else: `--rerun-failed N` runs up
to N failed tests again in one process, with `--last-failed`; more are a defect, not chance. If all pass, the level is green and
ends with their names and both outputs, which are appended to `RAYTIDE_RERUN_LOG` too, if that is set. Such a test is to be mended.
Tests in virtual time and unit tests are never run again: their levels do not have the option. Registered by conftest.py.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from support.deadlines import PATIENCE

LOG_VARIABLE: Final = "RAYTIDE_RERUN_LOG"
ENDS_WITHIN_S: Final = 900.0
"""A second run that takes longer than this hangs, and is ended with its processes."""


class RerunFailed:
    """The plugin of the process that distributes or runs the tests."""

    def __init__(self, config: pytest.Config, most: int, *, is_complete: Callable[[], bool]) -> None:
        """`is_complete` is asked at the end: a run with too few tests stays red."""
        self._config = config
        self._most = most
        self._is_complete = is_complete
        self._failed: dict[str, str] = {}
        """Output of each failed test by its node id."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the output of a failed test."""
        if report.failed:
            sections = (f"----- {title} -----\n{text}" for title, text in report.sections)
            text = "\n".join([f"({report.when})", report.longreprtext, *sections])
            self._failed[report.nodeid] = "\n".join(filter(None, [self._failed.get(report.nodeid), text]))

    def final_code(self, code: int | pytest.ExitCode) -> int | pytest.ExitCode:
        """Exit code of the level, whose first run has ended with `code` and with its workers and fixtures."""
        if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(self._failed) <= self._most or not self._is_complete():
            return code
        names = "\n  ".join(self._failed)
        _show(f"\n=== run again, alone, at most {ENDS_WITHIN_S * PATIENCE:.0f} s:\n  {names}")
        again, output = self._run_again()
        _show(output)
        if again == pytest.ExitCode.OK:
            self._tell(f"=== passed only when run again, to be mended:\n  {names}", output)
        return again

    def _run_again(self) -> tuple[int, str]:
        """Exit code and output of a pytest of its own with the same selection, of which it takes what has failed."""
        changed = ["--last-failed", "--last-failed-no-failures", "none", "--rerun-failed", "0", "-rA"]
        changed += ["--at-least", str(len(self._failed))]
        changed += ["--numprocesses", "0"] if self._config.pluginmanager.has_plugin("xdist") else []
        command = [sys.executable, "-m", "pytest", *self._config.invocation_params.args, *changed]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=self._config.invocation_params.dir,
        ) as process:
            try:
                output, _ = process.communicate(timeout=ENDS_WITHIN_S * PATIENCE)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                output = f"{process.communicate()[0]}\nended: it ran longer than {ENDS_WITHIN_S * PATIENCE:.0f} s"
        return process.returncode, output

    def _tell(self, title: str, output: str) -> None:
        """Print and append names and both outputs."""
        first = "\n".join(f"--- first run: {name}\n{text}" for name, text in self._failed.items())
        told = f"{title}\n{first}\n--- second run:\n{output}\n"
        _show(title)
        if path := os.environ.get(LOG_VARIABLE):
            with Path(path).open("a", encoding="utf-8") as log:
                log.write(told)


def _show(text: str) -> None:
    """Print it: pytest's own reporter has ended."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
