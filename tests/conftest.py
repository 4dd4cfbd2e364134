"""Options that the whole suite knows."""

import asyncio
import gc
import os
from collections.abc import Callable, Generator

import hypothesis
import pytest

from support import virtual_time
from support.kube_plane import kube_plane  # noqa: F401 - a fixture of the whole suite
from support.run_report import RunReport

# Examples that take 200 ms on a busy machine are no failures: what must be fast is measured in bench/.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


SEED = int(os.environ["RAYTIDE_SEED"]) if os.environ.get("RAYTIDE_SEED") else None
"""Of everything that is drawn anew in each run: `.ci/run` derives it from the commit, so that a run can be repeated."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--histories", type=int, default=20, help="how many random histories the simulation tells")
    parser.addoption("--first-history", type=int, default=0, help="the seed of the first one")
    parser.addoption("--cloud-days", type=int, default=3, help="how many random days in a cloud are lived")
    parser.addoption("--specs-batches", type=int, default=2, help="of generated objects of each kind, 26 each")
    parser.addoption("--specs-seed", type=int, default=SEED, help="of the first batch; drawn anew if absent")
    parser.addoption("--cloud-seed", type=int, default=SEED, help="the first of their seeds; drawn anew if absent")
    parser.addoption("--points", type=int, default=6, help="at how many points of each scenario a fault is tried")
    parser.addoption(
        "--grace", type=int, default=10, help="seconds that the trainers of test_training_shares_slowly.py take"
    )
    parser.addoption("--mutation", default="", help="break the product on purpose (see simulation/mutations.py)")
    parser.addoption(
        "--clock-start", type=float, help="how long the machine seems to be up, in seconds (virtual_time.py)"
    )
    parser.addoption("--at-least", type=int, default=0, help="be red unless so many tests ran to their end")
    parser.addoption("--record-probe", action="store_true", help="write down what the real control plane answers")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its option
def pytest_configure(config: pytest.Config) -> None:
    if SEED is not None and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(SEED)
    if config.getoption("--clock-start") is not None:
        virtual_time.start_clocks_at(config.getoption("--clock-start"))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunReport(config, config.getoption("--at-least")), "run-report")


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
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_sessionstart() -> None:
    # Before Python 3.14 the first question for "the" event loop makes one that nobody closes; plugins ask.
    asyncio.set_event_loop(None)
