"""The clocks of tests: virtual from the first fixture on, and independent of the machine's uptime."""

import asyncio
import time
from pathlib import Path

import pytest

from raytide.runtime.clock import Clock
from support import virtual_time

TEN_DAYS_S = 864_000.0
TESTS = Path(virtual_time.__file__).parents[1]


@pytest.fixture
async def ticks():
    times = []

    async def tick():
        while True:
            await asyncio.sleep(30)
            times.append(virtual_time.elapsed_s())

    task = asyncio.create_task(tick())
    await asyncio.sleep(15)
    yield times
    await asyncio.sleep(30)
    task.cancel()
    assert times[-1] == 3630


@pytest.mark.rule("FD:UX-0")
@pytest.mark.looptime
async def test_a_task_that_a_fixture_started_runs_in_virtual_time(ticks):
    await asyncio.sleep(3600)
    assert ticks == [30.0 * number for number in range(1, 121)]


async def test_other_tests_run_on_the_clock_of_the_machine():
    assert asyncio.get_running_loop().time() == pytest.approx(time.monotonic(), abs=60)


def test_clocks_start_at_the_configured_uptime(monkeypatch):
    for clock in ("monotonic", "clock_gettime"):
        monkeypatch.setattr(time, clock, getattr(time, clock))
    monkeypatch.setattr(virtual_time, "_start_s", 0.0)
    virtual_time.start_clocks_at(TEN_DAYS_S)

    async def read():
        return Clock().monotonic(), Clock().boottime()

    assert virtual_time.run(read()) == (TEN_DAYS_S, pytest.approx(2 * TEN_DAYS_S, abs=1))
    assert asyncio.run(read()) == (pytest.approx(TEN_DAYS_S, abs=60), pytest.approx(2 * TEN_DAYS_S, abs=60))


@pytest.mark.rule("FD:UX-0")
def test_what_runs_in_virtual_time_is_run_by_make_test_uptime():
    """Loops are made in one place, and a test that creates one has the mark."""
    texts = {
        path: path.read_text()
        for path in TESTS.rglob("*.py")
        if path not in (Path(__file__), TESTS / "support" / "virtual_time.py")
    }
    assert [path for path, text in texts.items() if "import looptime" in text] == []
    makes_loops = [
        path for path, text in texts.items() if path.name.startswith("test_") and "virtual_time.run(" in text
    ]
    assert makes_loops
    assert [path for path in makes_loops if "mark.looptime" not in texts[path]] == []
