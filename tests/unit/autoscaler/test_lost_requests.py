"""What `request_resources()` asked for when the GCS started again: it keeps that in its memory only (FD:AS-A23, AS:G-9)."""

import logging

import pytest

from raytide.autoscaler.model import Demand, Request, amounts_of
from support.fake_gcs import GcsWorld, fake_gcs
from unit.autoscaler.harness import Stage

pytestmark = [pytest.mark.looptime, pytest.mark.rule("FD:AS-A23", "AS:G-9")]

ASKED = (Demand(Request(amounts_of({"CPU": 1})), 3),)
MORE = (Demand(Request(amounts_of({"CPU": 1})), 4),)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param([(None, "s1")], None, id="nothing was ever asked for"),
        pytest.param([(ASKED, "s1"), (None, "s1")], ASKED, id="the GCS started again in the same session"),
        pytest.param([(ASKED, "s1"), (None, "s1"), (None, "s1")], ASKED, id="and was asked again"),
        pytest.param([(ASKED, "s1"), (None, "s1"), (MORE, "s1")], MORE, id="somebody asked anew"),
        pytest.param([(ASKED, "s1"), (None, "s1"), ((), "s1"), (None, "s1")], (), id="somebody took it back"),
        pytest.param([(ASKED, "s1"), (None, "s2")], None, id="another session: another Ray"),
        pytest.param([(ASKED, "s1"), (None, "s2"), (None, "s1")], None, id="and that does not come back"),
        pytest.param([(ASKED, ""), (None, "")], None, id="a Ray that does not name its session"),
    ],
)
async def test_the_last_call_counts_until_the_next_one_or_the_next_session(told, expected):
    world = GcsWorld()
    client = fake_gcs(world)
    for constraint, world.session in told:
        world.constraint = None if constraint is None else [*constraint]
        state = await client.state()
    assert state.constraint == expected


async def test_nodes_that_were_asked_for_stay_when_the_gcs_starts_again(caplog):
    caplog.set_level(logging.INFO, logger="raytide")
    stage = Stage()
    stage.gcs.constraint = [*ASKED]
    async with stage.running():
        await stage.until("three replicas", lambda: stage.group["replicas"] == 3)
        for number in range(3):
            stage.gcs.make_idle(f"demo-cpu-worker-{number}")
        stage.gcs.constraint = None
        turns = len(stage.ticks)
        await stage.until("five idle minutes", lambda: len(stage.ticks) > turns + 60, within_s=400)
        assert (stage.group["replicas"], stage.gcs.drains) == (3, [])
        stage.gcs.constraint = []
        await stage.until("they go", lambda: stage.group["replicas"] == 0, within_s=200)
    assert len([r for r in caplog.records if "request_resources" in r.getMessage()]) == 1
