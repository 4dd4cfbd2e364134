"""Options that the whole suite knows."""

import asyncio
import gc
import importlib
import os
from collections.abc import Callable, Generator

import hypothesis
import pytest

from support import virtual_time
from support.deadlines import PATIENCE
from support.kube_plane import kube_plane  # noqa: F401 - a fixture of the whole suite
from support.rerun_failed import RerunFailed
from support.run_report import RunReport

# Examples that take 200 ms on a busy machine are no failures: what must be fast is measured in bench/.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


SEED = int(os.environ["RAYTIDE_SEED"]) if os.environ.get("RAYTIDE_SEED") else None
"""Of everything that is drawn anew in each run: `.ci/run` derives it from the commit, so that a run can be repeated."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--histories", type=int, default=10, help="number of random histories of the simulation that are run"
    )
    parser.addoption("--first-history", type=int, default=0, help="seed of the first random history")
    parser.addoption(
        "--cloud-days", type=int, default=3, help="number of random days of the cloud simulation that are run"
    )
    parser.addoption(
        "--specs-batches",
        type=int,
        default=1,
        help="number of batches of 26 generated objects that are run for each kind",
    )
    parser.addoption(
        "--submissions", type=int, default=2, help="number of random submissions whose predicted effect is compared"
    )
    parser.addoption("--specs-seed", type=int, default=SEED, help="seed of the first batch; drawn by default")
    parser.addoption("--cloud-seed", type=int, default=SEED, help="seed of the first cloud day; drawn by default")
    parser.addoption(
        "--points", type=int, default=3, help="number of points of each scenario at which a fault is injected"
    )
    parser.addoption(
        "--grace",
        type=int,
        default=10,
        help="seconds that trainers of test_training_shares_slowly.py take to terminate",
    )
    parser.addoption(
        "--mutation",
        default="",
        help="name of a mutation of the product that is applied (tests/simulation/mutations.py)",
    )
    parser.addoption(
        "--clock-start",
        type=float,
        help="start of the monotonic clock of virtual time, in seconds of uptime (virtual_time.py)",
    )
    parser.addoption("--at-least", type=int, default=0, help="fail unless at least this number of tests was run")
    parser.addoption(
        "--rerun-failed",
        type=int,
        default=0,
        help="run up to this number of failed tests once more, alone, when all others have ended",
    )
    parser.addoption("--record-probe", action="store_true", help="record the responses of the real control plane")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int | pytest.ExitCode, int | pytest.ExitCode]:
    report = RunReport(config, config.getoption("--at-least"))
    rerun = RerunFailed(config, config.getoption("--rerun-failed"), is_complete=lambda: not report.too_few)
    config.pluginmanager.register(report, "run-report")
    config.pluginmanager.register(rerun, "rerun-failed")
    return rerun.final_code((yield))


def pytest_report_header() -> str:
    return f"deadlines: {PATIENCE:g} times as long as on an idle machine"


@pytest.hookimpl(tryfirst=True)  # before Hypothesis and pytest-timeout read their options
def pytest_configure(config: pytest.Config) -> None:
    if SEED is not None and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(SEED)
    if config.getoption("--clock-start") is not None:
        virtual_time.start_clocks_at(config.getoption("--clock-start"))
    if name := config.getoption("--mutation"):  # until the process ends
        importlib.import_module("simulation.mutations").MUTATIONS[name](pytest.MonkeyPatch())
    if not hasattr(config, "workerinput"):  # workers get the options of the process that distributes
        config.option.timeout = float(config.option.timeout or config.getini("timeout")) * PATIENCE


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test's own time-out, too."""
    if marker := item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(marker.args[0] * PATIENCE), append=False)


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """One loop for a test and its fixtures: looptime's own plugin would leave the fixtures to the machine's clock."""
    is_virtual = item.get_closest_marker("looptime") is not None
    return {"virtual": virtual_time.new_loop} if is_virtual else {"real": asyncio.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected is garbage: looking for some would take a third of the collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Thousands of modules, tests and tables stay: looking through them again and again is a fifth of a run."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_sessionstart() -> None:
    # Before Python 3.14 the first question for "the" event loop creates one that is never closed; plugins ask.
    asyncio.set_event_loop(None)
