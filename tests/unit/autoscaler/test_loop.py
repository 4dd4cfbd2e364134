"""The loop in virtual time: what is asked how often, in which order it is carried out, and what trouble does to it."""

import asyncio
import itertools
import logging
from dataclasses import replace

import pytest

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.autoscaler import loop as looping
from raytide.autoscaler.gcs.channel import TIMEOUT_S
from raytide.autoscaler.loop import GcsUnauthenticatedError
from raytide.autoscaler.model import Drained
from raytide.autoscaler.provider import Written
from raytide.autoscaler.state.snapshot import ReconcilerState
from support.builders import group
from support.fake_gcs import fake_gcs
from unit.autoscaler.harness import CLUSTERS, KEY, Stage
from unit.kube.scripted import status_error

pytestmark = pytest.mark.looptime


@pytest.fixture
async def stage():
    return Stage()


async def scaled_up(stage, workers):
    """Workers came for tasks and stand idle, as after a burst."""
    stage.edit(lambda obj: obj["spec"]["workerGroupSpecs"][0].update(replicas=workers))


async def test_demand_becomes_replicas_in_one_patch(stage):
    stage.ask_for(3)
    async with stage.running():
        await stage.until("three replicas", lambda: stage.group["replicas"] == 3, within_s=5)
        await asyncio.sleep(30)
    assert stage.count("PATCH") == 1


@pytest.mark.rule("PF:P9", "FD:AS-A16", "AS:B-19")
async def test_a_tick_is_one_question_to_ray_and_neither_a_get_nor_a_list(stage):
    async with stage.running():
        await stage.until("a first tick", lambda: stage.ticks)
        ticks, asked = len(stage.ticks), stage.count("GET")
        states = stage.gcs.calls["GetClusterResourceState"]
        await asyncio.sleep(100)
    turned = len(stage.ticks) - ticks
    assert turned == pytest.approx(20, abs=1)
    assert stage.gcs.calls["GetClusterResourceState"] - states == pytest.approx(turned, abs=1)
    assert stage.count("GET") == asked
    assert (stage.count("GET pods"), stage.count("GET rayclusters")) == (1, 1)


@pytest.mark.rule("AS:L-1")
async def test_a_changed_pod_is_looked_at_soon_and_many_only_once_a_second(stage):
    async with stage.running(interval_s=1000):
        await stage.until("a first tick", lambda: stage.ticks)
        await asyncio.sleep(10)
        ticks = len(stage.ticks)
        stage.touch_pod("demo-head", "x")
        assert await stage.until("a tick", lambda: len(stage.ticks) > ticks) < 0.1
        for number in range(100):
            stage.touch_pod("demo-head", str(number))
            await asyncio.sleep(0.05)
    assert len(stage.ticks) - ticks == pytest.approx(6, abs=1)


@pytest.mark.rule("FD:AS-A17", "AS:L-1")
@pytest.mark.parametrize(
    ("answered_in_s", "seconds"),
    [
        pytest.param(0.0, 1.0, id="at once"),
        pytest.param(0.05, 1.0, id="soon"),
        pytest.param(0.1, 2.0, id="the answer has thousands of nodes"),
        pytest.param(0.25, 5.0, id="as long as Ray waits"),
        pytest.param(15.0, 5.0, id="not at all"),
    ],
)
def test_the_longer_the_gcs_takes_to_answer_the_less_often_it_is_asked(answered_in_s, seconds):
    assert looping.shortest_tick_s(answered_in_s) == pytest.approx(seconds)


@pytest.mark.rule("FD:AS-A17")
@pytest.mark.parametrize(("delay_s", "every_s"), [(0.01, 1), (0.2, 4), (2.0, 5)])
async def test_pods_that_change_all_the_time_cost_the_gcs_a_twentieth_of_its_time_at_most(stage, delay_s, every_s):
    stage.gcs.delay_s = delay_s
    async with stage.running():
        await stage.until("a first tick", lambda: stage.ticks)
        asked = stage.gcs.calls["GetClusterResourceState"]
        for number in range(600):
            stage.touch_pod("demo-head", str(number))
            await asyncio.sleep(0.1)
    assert stage.gcs.calls["GetClusterResourceState"] - asked == pytest.approx(60 / every_s, abs=1)


@pytest.mark.rule("AS:B-21", "AS:B-28")
async def test_scale_down_lowers_then_drains_then_names_at_once(stage):
    await scaled_up(stage, 2)
    drained_at = []

    def drain(node, reason):
        drained_at.append((stage.clock.monotonic(), stage.group["replicas"], stage.count("PATCH")))
        return Drained(is_accepted=True)

    stage.gcs.answer_drain = drain
    for number in range(2):
        stage.gcs.make_idle(f"demo-cpu-worker-{number}")
    async with stage.running():
        await stage.until("both are named", lambda: len(names_to_delete(stage)) == 2, within_s=120)
        named_at = stage.clock.monotonic()
    assert [(replicas, patches) for _, replicas, patches in drained_at] == [(0, 1), (0, 1)]
    assert named_at - drained_at[-1][0] < 0.1
    assert "workersToDelete" not in str(stage.writes()[0])


def names_to_delete(stage):
    return stage.group.get("scaleStrategy", {}).get("workersToDelete", [])


@pytest.mark.rule("AS:B-21")
async def test_a_drain_without_an_answer_does_not_keep_the_names_of_others_waiting(stage):
    await scaled_up(stage, 3)
    inner = looping.Autoscaler._send_drain
    silent = stage.gcs.node("demo-cpu-worker-1").node_id

    async def ask(self, drain):
        if drain.node_id == silent:
            await asyncio.sleep(3600)
        return await inner(self, drain)

    for number in range(3):
        stage.gcs.make_idle(f"demo-cpu-worker-{number}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looping.Autoscaler, "_send_drain", ask)
        async with stage.running():
            await stage.until("the first drain", lambda: stage.gcs.drains, within_s=120)
            assert await stage.until("two are named", lambda: len(names_to_delete(stage)) == 2) < 1.0
    assert next(tick for tick in stage.ticks if tick.answers).answers[silent] is None


@pytest.mark.rule("FD:AS-A12")
async def test_a_slice_whose_first_host_turned_busy_keeps_the_other_hosts():
    stage = Stage(group("tpu", replicas=0, low=0, high=10, numOfHosts=4))
    await scaled_up(stage, 2)
    asked = []

    def drain(node, reason):
        asked.append(node.instance_id)
        return Drained(is_accepted=node.instance_id != "demo-tpu-worker-0", message="busy")

    stage.gcs.answer_drain = drain
    for number in range(8):
        stage.gcs.make_idle(f"demo-tpu-worker-{number}")
    async with stage.running():
        await stage.until("the other slice is named", lambda: len(names_to_delete(stage)) == 4, within_s=120)
    assert asked[:2] == ["demo-tpu-worker-0", "demo-tpu-worker-4"]
    assert set(asked) == {"demo-tpu-worker-0", *(f"demo-tpu-worker-{number}" for number in range(4, 8))}
    assert [node.instance_id for node in stage.gcs.nodes.values() if node.is_alive][1:] == [
        f"demo-tpu-worker-{number}" for number in range(4)
    ]


@pytest.mark.rule("FD:AS-A12")
async def test_a_slice_that_answers_slowly_is_asked_to_its_last_host_and_only_hosts_that_were_asked_have_answers():
    stage = Stage(group("cpu", replicas=0), group("tpu", replicas=0, numOfHosts=4))
    stage.edit(lambda obj: [each.update(replicas=1 + (each["groupName"] == "tpu")) for each in groups_of(obj)])
    inner = looping.Autoscaler._send_drain

    async def ask(self, drain):
        await asyncio.sleep(0.3 if drain.group == "tpu" else 0.01)
        return await inner(self, drain)

    busy = stage.gcs.node("demo-tpu-worker-4").node_id
    for name in ("demo-cpu-worker-0", *(f"demo-tpu-worker-{number}" for number in range(8))):
        stage.gcs.make_idle(name)
    answer = stage.gcs.answer_drain
    stage.gcs.answer_drain = lambda node, reason: (
        Drained(is_accepted=False, message="busy") if node.node_id == busy else answer(node, reason)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looping.Autoscaler, "_send_drain", ask)
        async with stage.running():
            await stage.until("a drain", lambda: stage.gcs.drains, within_s=120)
            await stage.until("its turn is over", lambda: any(tick.answers for tick in stage.ticks))
    answers = next(tick for tick in stage.ticks if tick.answers).answers
    assert [each.is_accepted for each in answers.values()].count(True) == 5, "one host alone, and a whole slice"
    assert (len(answers), answers[busy].is_accepted) == (6, False)


def groups_of(obj):
    return obj["spec"]["workerGroupSpecs"]


@pytest.mark.parametrize("status", [409, 422])
@pytest.mark.rule("AS:B-25", "RM:I24")
async def test_a_patch_that_was_outrun_is_decided_anew(stage, status):
    stage.ask_for(3)
    rejected = []

    def outrun(method, path, body):
        if method == "PATCH" and not rejected:
            rejected.append(path)
            stage.edit(lambda obj: obj["spec"]["workerGroupSpecs"][0].update(maxReplicas=2))
            return status_error(status, "Invalid", "the server rejected our request")
        return None

    stage.front.intercept = outrun
    async with stage.running():
        took_s = await stage.until("two replicas", lambda: stage.group["replicas"] == 2, within_s=20)
    assert took_s < 15
    assert stage.ticks[0].written is Written.OUTRUN


async def test_without_the_first_patch_nobody_is_drained(stage):
    await scaled_up(stage, 2)
    for number in range(2):
        stage.gcs.make_idle(f"demo-cpu-worker-{number}")
    stage.front.intercept = lambda method, _path, _body: status_error(422, "Invalid") if method == "PATCH" else None
    async with stage.running():
        await asyncio.sleep(120)
    assert stage.count("PATCH") > 1
    assert stage.gcs.drains == []


async def test_a_patch_that_was_written_although_the_answer_was_lost_is_not_written_twice(stage):
    stage.ask_for(3)
    lost = []

    def lose(method, path, body):
        if method == "PATCH" and not lost:
            lost.append(path)
            return ApiUnavailableError("connection reset", is_outcome_unknown=True)
        return None

    stage.front.after = lose
    async with stage.running():
        await stage.until("the second tick", lambda: len(stage.ticks) > 2)
        await asyncio.sleep(20)
    assert stage.group["replicas"] == 3
    assert stage.ticks[0].written is Written.UNKNOWN
    assert stage.count("PATCH") == 1


@pytest.mark.rule("AS:B-17")
async def test_a_gcs_that_is_away_for_hours_is_mentioned_once_and_heard_when_it_is_back(stage, caplog):
    caplog.set_level(logging.INFO, logger="raytide")
    async with stage.running():
        await stage.until("a first tick", lambda: stage.ticks)
        stage.gcs.is_away = True
        stage.ask_for(3)
        await asyncio.sleep(3 * 3600)
        assert stage.group["replicas"] == 0
        stage.gcs.is_away = False
        assert (
            await stage.until("three replicas", lambda: stage.group["replicas"] == 3) <= looping.LONGEST_BACKOFF_S + 1
        )
    lines = [record.message for record in caplog.records if "GCS" in record.message]
    assert len([line for line in lines if "retrying" in line]) == 1
    assert len([line for line in lines if "answers again" in line]) == 1


async def test_an_api_server_that_is_away_is_mentioned_once_and_asked_less_and_less(stage, caplog):
    async with stage.running():
        await stage.until("a first tick", lambda: stage.ticks)
        stage.front.intercept = lambda *_: ApiUnavailableError("connection refused")
        stage.front.cut()
        began = len(stage.ticks)
        await asyncio.sleep(3600)
        assert 100 < len(stage.ticks) - began < 140
        assert {tick.skipped for tick in stage.ticks[began + 1 :]} == {"kubernetes"}
        stage.front.intercept = lambda *_: None
        stage.ask_for(3)
        await stage.until("three replicas", lambda: stage.group["replicas"] == 3)
    assert len([r for r in caplog.records if "no decision is possible" in r.message]) == 1


async def test_pods_that_are_not_listed_yet_are_waited_for(stage):
    stage.ask_for(3)
    stage.front.intercept = lambda _method, path, _body: (
        ApiUnavailableError("not now") if path.endswith("/pods") else None
    )
    async with stage.running():
        await asyncio.sleep(60)
        assert {tick.skipped for tick in stage.ticks} == {"pods"}
        assert stage.count("PATCH") == 0
        stage.front.intercept = lambda *_: None
        await stage.until("three replicas", lambda: stage.group["replicas"] == 3)


async def test_a_deleted_raycluster_is_no_reason_to_end(stage):
    async with stage.running() as task:
        await stage.until("a first tick", lambda: stage.ticks)
        stage.store.delete(CLUSTERS, *KEY)
        await asyncio.sleep(60)
        assert stage.ticks[-1].skipped == "gone"
        assert not task.done()


@pytest.mark.rule("AS:L-3")
async def test_a_bug_in_a_decision_is_logged_and_the_next_tick_decides(stage, caplog, monkeypatch):
    stage.ask_for(3)
    decide, broken = looping.reconcile, []

    def sometimes(snapshot, state, on_progress):
        if len(broken) < 2:
            broken.append(state)
            raise KeyError("a bug")
        return decide(snapshot, state, on_progress)

    monkeypatch.setattr(looping, "reconcile", sometimes)
    async with stage.running():
        await stage.until("three replicas", lambda: stage.group["replicas"] == 3)
    assert [tick.skipped for tick in stage.ticks[:3]] == ["bug", "bug", ""]
    assert broken == [ReconcilerState(), ReconcilerState()]
    assert len([record for record in caplog.records if record.exc_info]) == 2


@pytest.mark.rule("AS:L-6")
async def test_credentials_that_ray_does_not_accept_end_the_loop(stage):
    stage.gcs.trouble["GetClusterResourceState"] = ApiStatusError(401, "Unauthenticated", "InvalidAuthToken")
    async with stage.running() as task:
        with pytest.raises(BaseExceptionGroup) as caught:
            await asyncio.wait_for(asyncio.shield(task), 60)
    assert caught.group_contains(GcsUnauthenticatedError)


@pytest.mark.rule("AS:B-5")
async def test_after_a_restart_the_report_is_not_below_the_one_that_ray_keeps(stage):
    async with stage.running():
        await stage.until("a report", lambda: stage.gcs.reports)
        await asyncio.sleep(20)
    before = stage.gcs.kept.autoscaler_state_version
    count = len(stage.gcs.reports)
    async with stage.running():
        await stage.until("a report of the next process", lambda: len(stage.gcs.reports) > count)
    assert stage.gcs.reports[count].autoscaler_state_version >= before
    assert stage.gcs.kept is stage.gcs.reports[-1]


async def test_a_gcs_that_lost_its_memory_is_asked_anew_for_what_it_keeps(stage):
    async with stage.running():
        await stage.until("a first tick", lambda: stage.ticks)
        asked = stage.gcs.calls["GetClusterStatus"]
        stage.gcs.session = "session_2"
        await asyncio.sleep(20)
    assert (asked, stage.gcs.calls["GetClusterStatus"]) == (1, 2)


@pytest.mark.rule("AS:L-4")
async def test_a_gcs_that_does_not_take_the_report_changes_nothing(stage):
    stage.ask_for(3)
    stage.gcs.trouble["ReportAutoscalingState"] = ApiUnavailableError("busy")
    async with stage.running():
        await stage.until("three replicas", lambda: stage.group["replicas"] == 3)
        await asyncio.sleep(20)
    assert {tick.skipped for tick in stage.ticks} == {""}


async def test_a_slow_api_server_and_a_slow_gcs_are_read_side_by_side(stage):
    stage.front.intercept = lambda _m, path, _b: (
        status_error(403) if path.endswith("/rayclusters") else None
    )  # no watch
    stage.front.delay_s = stage.gcs.delay_s = 2.0
    async with stage.running():
        await stage.until("two ticks", lambda: len(stage.ticks) >= 3)
    assert stage.ticks[-1].lasted_s == pytest.approx(2.0, abs=0.2)  # both at once; nothing has to be told


@pytest.mark.rule("D12")
async def test_a_sidecar_killed_at_any_moment_leaves_the_next_one_to_finish(stage):
    stage.ask_for(4)
    for after_s in [0.0005 * step for step in range(12)]:
        async with stage.running():
            await asyncio.sleep(after_s)
    async with stage.running():
        await stage.until("four replicas", lambda: stage.group["replicas"] == 4)
        await asyncio.sleep(20)
    assert stage.group["replicas"] == 4
    assert stage.count("PATCH") <= 2


async def test_the_state_of_two_ticks_does_not_share_a_snapshot(stage, monkeypatch):
    """What a plan says of memory is what the next one gets, whatever became of the writes."""
    states, decide = [], looping.reconcile

    def watch(snapshot, state, on_progress):
        states.append(state)
        return replace(
            decide(snapshot, state, on_progress), state=replace(state, report_version=state.report_version + 1)
        )

    monkeypatch.setattr(looping, "reconcile", watch)
    async with stage.running():
        await stage.until("three ticks", lambda: len(stage.ticks) >= 3)
    assert [state.report_version for state in states[:3]] == [0, 1, 2]


async def test_a_patch_that_is_rejected_again_and_again_is_tried_less_and_less(stage):
    stage.ask_for(3)
    stage.front.intercept = lambda method, *_: status_error(403, "Forbidden") if method == "PATCH" else None
    async with stage.running():
        await asyncio.sleep(300)
    assert 5 <= stage.count("PATCH") <= 20


async def test_what_ray_says_that_cannot_be_is_told_once_per_kind(stage, caplog):
    client, told = fake_gcs(stage.gcs), itertools.count(1)
    state = client.state

    async def with_nonsense():
        return replace(
            await state(), problems=(f"demands with invalid resource amounts skipped: {next(told)}, the first is x",)
        )

    client.state = with_nonsense
    async with stage.running(gcs=client):
        await asyncio.sleep(60)
    assert [r.levelname for r in caplog.records if "invalid resource amounts" in r.getMessage()] == ["WARNING"]


async def test_who_counts_turns_and_breaks_costs_no_turn(stage, caplog):
    stage.ask_for(3)
    autoscaler = stage.autoscaler(on_tick=(lambda _tick: 1 / 0, stage.ticks.append))
    task = asyncio.create_task(autoscaler.run())
    await stage.until("three replicas", lambda: stage.group["replicas"] == 3)
    await stage.until("turns after the first", lambda: len(stage.ticks) > 1)
    assert not task.done()
    assert any(record.exc_info for record in caplog.records)
    task.cancel()


def test_the_wire_gives_up_before_the_loop_does():
    assert looping.GCS_S > TIMEOUT_S
