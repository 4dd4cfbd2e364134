"""The report at the end of a run: figures that tests recorded, and whether enough tests ran.

`record_property(FIGURE, text)` tells a figure: it is printed when the test has ended, by the one process that reports,
whichever worker ran the test. `--at-least N` turns a run red in which fewer than N tests ran to their end: a marker that
selects nothing any more, or a fixture that skips, must not look like success. Registered by conftest.py.
"""

import pytest

FIGURE = "figure"


class RunReport:
    """The plugin of the process that reports; workers of pytest-xdist have none."""

    def __init__(self, config: pytest.Config, least: int) -> None:
        self._config = config
        self._least = least
        self.ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count completed tests and those whose setup failed, which are red anyway or run again; print figures."""
        self.ran += (report.when == "call" and not report.skipped) or (report.when == "setup" and report.failed)
        if report.when == "teardown":
            self._print([str(text) for name, text in report.user_properties if name == FIGURE])

    def _print(self, figures: list[str]) -> None:
        screen = self._config.pluginmanager.get_plugin("terminalreporter")
        for text in figures if screen is not None else ():
            screen.write_line(f"\n{text}")  # behind the dots of the tests that have ended

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Red for too few, unless it is red already."""
        if self.too_few and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say so."""
        if self.too_few:
            terminalreporter.write_line(self.too_few, red=True)

    @property
    def too_few(self) -> str:
        """One sentence, or nothing."""
        is_short = self.ran < self._least
        return f"{self.ran} tests ran to their end: this level has at least {self._least}" if is_short else ""
