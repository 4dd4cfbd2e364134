"""Requests of `request_resources()` after a restart of the GCS, which has them in memory only (FD:AS-A23, AS:G-9)."""

import logging

import pytest

from raytide.autoscaler.model import Demand, Request, amounts_of
from support.fake_gcs import GcsWorld, fake_gcs
from unit.autoscaler.harness import Harness

pytestmark = [pytest.mark.looptime, pytest.mark.rule("FD:AS-A23", "AS:G-9")]

ASKED = (Demand(Request(amounts_of({"CPU": 1})), 3),)
MORE = (Demand(Request(amounts_of({"CPU": 1})), 4),)


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        pytest.param([(None, "s1")], None, id="nothing was ever requested"),
        pytest.param([(ASKED, "s1"), (None, "s1")], ASKED, id="the GCS started again in the same session"),
        pytest.param([(ASKED, "s1"), (None, "s1"), (None, "s1")], ASKED, id="and the GCS reported nothing again"),
        pytest.param([(ASKED, "s1"), (None, "s1"), (MORE, "s1")], MORE, id="a new request_resources"),
        pytest.param([(ASKED, "s1"), (None, "s1"), ((), "s1"), (None, "s1")], (), id="request_resources was withdrawn"),
        pytest.param([(ASKED, "s1"), (None, "s2")], None, id="another session: another Ray"),
        pytest.param([(ASKED, "s1"), (None, "s2"), (None, "s1")], None, id="and that does not come back"),
        pytest.param([(ASKED, ""), (None, "")], None, id="a Ray that does not name its session"),
    ],
)
async def test_the_last_call_counts_until_the_next_one_or_the_next_session(replies, expected):
    world = GcsWorld()
    client = fake_gcs(world)
    for constraint, world.session in replies:
        world.constraint = None if constraint is None else [*constraint]
        state = await client.state()
    assert state.constraint == expected


async def test_nodes_of_request_resources_are_kept_when_the_gcs_restarts(caplog):
    caplog.set_level(logging.INFO, logger="raytide")
    harness = Harness()
    harness.gcs.constraint = [*ASKED]
    async with harness.running():
        await harness.until("three replicas", lambda: harness.group["replicas"] == 3)
        for number in range(3):
            harness.gcs.make_idle(f"demo-cpu-worker-{number}")
        harness.gcs.constraint = None
        turns = len(harness.ticks)
        await harness.until("five idle minutes", lambda: len(harness.ticks) > turns + 60, within_s=400)
        assert (harness.group["replicas"], harness.gcs.drains) == (3, [])
        harness.gcs.constraint = []
        await harness.until("they go", lambda: harness.group["replicas"] == 0, within_s=200)
    assert len([r for r in caplog.records if "request_resources" in r.getMessage()]) == 1
