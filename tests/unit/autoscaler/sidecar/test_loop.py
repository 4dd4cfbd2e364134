"""The loop in virtual time: its requests and their frequency, the order of its writes, and its reaction to errors."""

import asyncio
import itertools
import logging
from dataclasses import replace

import pytest

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.autoscaler.gcs.channel import TIMEOUT_S
from raytide.autoscaler.model import Drained
from raytide.autoscaler.provider.provider import PatchResult
from raytide.autoscaler.sidecar import loop as looping
from raytide.autoscaler.sidecar.loop import GcsUnauthenticatedError
from raytide.autoscaler.state.snapshot import ReconcilerState
from support.builders import group
from support.fake_gcs import fake_gcs
from unit.autoscaler.harness import CLUSTERS, KEY, Harness
from unit.kube.scripted import status_error

pytestmark = pytest.mark.looptime


@pytest.fixture
async def harness():
    return Harness()


async def scaled_up(harness, workers):
    """Workers came for tasks and stand idle, as after a burst."""
    harness.edit(lambda obj: obj["spec"]["workerGroupSpecs"][0].update(replicas=workers))


async def test_demand_becomes_replicas_in_one_patch(harness):
    harness.ask_for(3)
    async with harness.running():
        await harness.until("three replicas", lambda: harness.group["replicas"] == 3, within_s=5)
        await asyncio.sleep(30)
    assert harness.count("PATCH") == 1


@pytest.mark.rule("PF:P9", "FD:AS-A16", "AS:B-19")
async def test_a_pass_is_one_request_to_the_gcs_and_neither_a_get_nor_a_list(harness):
    async with harness.running():
        await harness.until("a first tick", lambda: harness.ticks)
        ticks, asked = len(harness.ticks), harness.count("GET")
        states = harness.gcs.calls["GetClusterResourceState"]
        await asyncio.sleep(100)
    turned = len(harness.ticks) - ticks
    assert turned == pytest.approx(20, abs=1)
    assert harness.gcs.calls["GetClusterResourceState"] - states == pytest.approx(turned, abs=1)
    assert harness.count("GET") == asked
    assert (harness.count("GET pods"), harness.count("GET rayclusters")) == (1, 1)


@pytest.mark.rule("AS:L-1")
async def test_a_changed_pod_is_reconciled_soon_and_many_only_once_a_second(harness):
    async with harness.running(interval_s=1000):
        await harness.until("a first tick", lambda: harness.ticks)
        await asyncio.sleep(10)
        ticks = len(harness.ticks)
        harness.touch_pod("demo-head", "x")
        assert await harness.until("a tick", lambda: len(harness.ticks) > ticks) < 0.1
        for number in range(100):
            harness.touch_pod("demo-head", str(number))
            await asyncio.sleep(0.05)
    assert len(harness.ticks) - ticks == pytest.approx(6, abs=1)


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
def test_the_interval_grows_with_the_response_time_of_the_gcs(answered_in_s, seconds):
    assert looping.shortest_tick_s(answered_in_s) == pytest.approx(seconds)


@pytest.mark.rule("FD:AS-A17")
@pytest.mark.parametrize(("delay_s", "every_s"), [(0.01, 1), (0.2, 4), (2.0, 5)])
async def test_pods_that_change_all_the_time_cost_the_gcs_a_twentieth_of_its_time_at_most(harness, delay_s, every_s):
    harness.gcs.delay_s = delay_s
    async with harness.running():
        await harness.until("a first tick", lambda: harness.ticks)
        asked = harness.gcs.calls["GetClusterResourceState"]
        for number in range(600):
            harness.touch_pod("demo-head", str(number))
            await asyncio.sleep(0.1)
    assert harness.gcs.calls["GetClusterResourceState"] - asked == pytest.approx(60 / every_s, abs=1)


@pytest.mark.rule("AS:B-21", "AS:B-28")
async def test_scale_down_lowers_then_drains_then_names_at_once(harness):
    await scaled_up(harness, 2)
    drained_at = []

    def drain(node, reason):
        drained_at.append((harness.clock.monotonic(), harness.group["replicas"], harness.count("PATCH")))
        return Drained(is_accepted=True)

    harness.gcs.answer_drain = drain
    for number in range(2):
        harness.gcs.make_idle(f"demo-cpu-worker-{number}")
    async with harness.running():
        await harness.until("both are named", lambda: len(names_to_delete(harness)) == 2, within_s=120)
        named_at = harness.clock.monotonic()
    assert [(replicas, patches) for _, replicas, patches in drained_at] == [(0, 1), (0, 1)]
    assert named_at - drained_at[-1][0] < 0.1
    assert "workersToDelete" not in str(harness.writes()[0])


def names_to_delete(harness):
    return harness.group.get("scaleStrategy", {}).get("workersToDelete", [])


@pytest.mark.rule("AS:B-21")
async def test_a_drain_without_an_answer_does_not_keep_the_names_of_others_waiting(harness):
    await scaled_up(harness, 3)
    inner = looping.Autoscaler._send_drain
    silent = harness.gcs.node("demo-cpu-worker-1").node_id

    async def ask(self, drain):
        if drain.node_id == silent:
            await asyncio.sleep(3600)
        return await inner(self, drain)

    for number in range(3):
        harness.gcs.make_idle(f"demo-cpu-worker-{number}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looping.Autoscaler, "_send_drain", ask)
        async with harness.running():
            await harness.until("the first drain", lambda: harness.gcs.drains, within_s=120)
            assert await harness.until("two are named", lambda: len(names_to_delete(harness)) == 2) < 1.0
    assert next(tick for tick in harness.ticks if tick.answers).answers[silent] is None


@pytest.mark.rule("FD:AS-A12")
async def test_a_slice_whose_first_host_turned_busy_keeps_the_other_hosts():
    harness = Harness(group("tpu", replicas=0, low=0, high=10, numOfHosts=4))
    await scaled_up(harness, 2)
    asked = []

    def drain(node, reason):
        asked.append(node.instance_id)
        return Drained(is_accepted=node.instance_id != "demo-tpu-worker-0", message="busy")

    harness.gcs.answer_drain = drain
    for number in range(8):
        harness.gcs.make_idle(f"demo-tpu-worker-{number}")
    async with harness.running():
        await harness.until("the other slice is named", lambda: len(names_to_delete(harness)) == 4, within_s=120)
    assert asked[:2] == ["demo-tpu-worker-0", "demo-tpu-worker-4"]
    assert set(asked) == {"demo-tpu-worker-0", *(f"demo-tpu-worker-{number}" for number in range(4, 8))}
    assert [node.instance_id for node in harness.gcs.nodes.values() if node.is_alive][1:] == [
        f"demo-tpu-worker-{number}" for number in range(4)
    ]


@pytest.mark.rule("FD:AS-A12")
async def test_a_slice_with_slow_drains_is_drained_to_its_last_host():
    harness = Harness(group("cpu", replicas=0), group("tpu", replicas=0, numOfHosts=4))
    harness.edit(lambda obj: [each.update(replicas=1 + (each["groupName"] == "tpu")) for each in groups_of(obj)])
    inner = looping.Autoscaler._send_drain

    async def ask(self, drain):
        await asyncio.sleep(0.3 if drain.group == "tpu" else 0.01)
        return await inner(self, drain)

    busy = harness.gcs.node("demo-tpu-worker-4").node_id
    for name in ("demo-cpu-worker-0", *(f"demo-tpu-worker-{number}" for number in range(8))):
        harness.gcs.make_idle(name)
    answer = harness.gcs.answer_drain
    harness.gcs.answer_drain = lambda node, reason: (
        Drained(is_accepted=False, message="busy") if node.node_id == busy else answer(node, reason)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looping.Autoscaler, "_send_drain", ask)
        async with harness.running():
            await harness.until("a drain", lambda: harness.gcs.drains, within_s=120)
            await harness.until("its turn is over", lambda: any(tick.answers for tick in harness.ticks))
    answers = next(tick for tick in harness.ticks if tick.answers).answers
    assert [each.is_accepted for each in answers.values()].count(True) == 5, "one host alone, and a whole slice"
    assert (len(answers), answers[busy].is_accepted) == (6, False)


def groups_of(obj):
    return obj["spec"]["workerGroupSpecs"]


@pytest.mark.parametrize("status", [409, 422])
@pytest.mark.rule("AS:B-25", "RM:I24")
async def test_a_patch_rejected_by_its_test_operations_is_recomputed(harness, status):
    harness.ask_for(3)
    rejected = []

    def outrun(method, path, body):
        if method == "PATCH" and not rejected:
            rejected.append(path)
            harness.edit(lambda obj: obj["spec"]["workerGroupSpecs"][0].update(maxReplicas=2))
            return status_error(status, "Invalid", "the server rejected our request")
        return None

    harness.front.intercept = outrun
    async with harness.running():
        took_s = await harness.until("two replicas", lambda: harness.group["replicas"] == 2, within_s=20)
    assert took_s < 15
    assert harness.ticks[0].patch_result is PatchResult.CONFLICT


async def test_without_the_first_patch_no_node_is_drained(harness):
    await scaled_up(harness, 2)
    for number in range(2):
        harness.gcs.make_idle(f"demo-cpu-worker-{number}")
    harness.front.intercept = lambda method, _path, _body: status_error(422, "Invalid") if method == "PATCH" else None
    async with harness.running():
        await asyncio.sleep(120)
    assert harness.count("PATCH") > 1
    assert harness.gcs.drains == []


async def test_a_patch_that_was_written_although_the_answer_was_lost_is_not_written_twice(harness):
    harness.ask_for(3)
    lost = []

    def lose(method, path, body):
        if method == "PATCH" and not lost:
            lost.append(path)
            return ApiUnavailableError("connection reset", is_outcome_unknown=True)
        return None

    harness.front.after = lose
    async with harness.running():
        await harness.until("the second tick", lambda: len(harness.ticks) > 2)
        await asyncio.sleep(20)
    assert harness.group["replicas"] == 3
    assert harness.ticks[0].patch_result is PatchResult.UNKNOWN
    assert harness.count("PATCH") == 1


@pytest.mark.rule("AS:B-17")
async def test_a_gcs_outage_of_hours_is_logged_once_and_demand_is_served_after_it(harness, caplog):
    caplog.set_level(logging.INFO, logger="raytide")
    async with harness.running():
        await harness.until("a first tick", lambda: harness.ticks)
        harness.gcs.is_away = True
        harness.ask_for(3)
        await asyncio.sleep(3 * 3600)
        assert harness.group["replicas"] == 0
        harness.gcs.is_away = False
        assert (
            await harness.until("three replicas", lambda: harness.group["replicas"] == 3)
            <= looping.LONGEST_BACKOFF_S + 1
        )
    lines = [record.message for record in caplog.records if "GCS" in record.message]
    assert len([line for line in lines if "retrying" in line]) == 1
    assert len([line for line in lines if "answers again" in line]) == 1


async def test_an_outage_of_the_api_server_is_logged_once_and_requests_back_off(harness, caplog):
    async with harness.running():
        await harness.until("a first tick", lambda: harness.ticks)
        harness.front.intercept = lambda *_: ApiUnavailableError("connection refused")
        harness.front.cut()
        began = len(harness.ticks)
        await asyncio.sleep(3600)
        assert 100 < len(harness.ticks) - began < 140
        assert {tick.skipped for tick in harness.ticks[began + 1 :]} == {"kubernetes"}
        harness.front.intercept = lambda *_: None
        harness.ask_for(3)
        await harness.until("three replicas", lambda: harness.group["replicas"] == 3)
    assert len([r for r in caplog.records if "no decision is possible" in r.message]) == 1


async def test_pods_that_are_not_listed_yet_are_waited_for(harness):
    harness.ask_for(3)
    harness.front.intercept = lambda _method, path, _body: (
        ApiUnavailableError("not now") if path.endswith("/pods") else None
    )
    async with harness.running():
        await asyncio.sleep(60)
        assert {tick.skipped for tick in harness.ticks} == {"pods"}
        assert harness.count("PATCH") == 0
        harness.front.intercept = lambda *_: None
        await harness.until("three replicas", lambda: harness.group["replicas"] == 3)


async def test_a_deleted_raycluster_is_no_reason_to_end(harness):
    async with harness.running() as task:
        await harness.until("a first tick", lambda: harness.ticks)
        harness.store.delete(CLUSTERS, *KEY)
        await asyncio.sleep(60)
        assert harness.ticks[-1].skipped == "gone"
        assert not task.done()


@pytest.mark.rule("AS:L-3")
async def test_a_bug_in_a_decision_is_logged_and_the_next_tick_decides(harness, caplog, monkeypatch):
    harness.ask_for(3)
    decide, broken = looping.reconcile, []

    def sometimes(snapshot, state, on_progress):
        if len(broken) < 2:
            broken.append(state)
            raise KeyError("a bug")
        return decide(snapshot, state, on_progress)

    monkeypatch.setattr(looping, "reconcile", sometimes)
    async with harness.running():
        await harness.until("three replicas", lambda: harness.group["replicas"] == 3)
    assert [tick.skipped for tick in harness.ticks[:3]] == ["bug", "bug", ""]
    assert broken == [ReconcilerState(), ReconcilerState()]
    assert len([record for record in caplog.records if record.exc_info]) == 2


@pytest.mark.rule("AS:L-6")
async def test_credentials_that_ray_does_not_accept_end_the_loop(harness):
    harness.gcs.errors["GetClusterResourceState"] = ApiStatusError(401, "Unauthenticated", "InvalidAuthToken")
    async with harness.running() as task:
        with pytest.raises(BaseExceptionGroup) as caught:
            await asyncio.wait_for(asyncio.shield(task), 60)
    assert caught.group_contains(GcsUnauthenticatedError)


@pytest.mark.rule("AS:B-5")
async def test_after_a_restart_the_report_is_not_below_the_one_that_ray_keeps(harness):
    async with harness.running():
        await harness.until("a report", lambda: harness.gcs.reports)
        await asyncio.sleep(20)
    before = harness.gcs.kept.autoscaler_state_version
    count = len(harness.gcs.reports)
    async with harness.running():
        await harness.until("a report of the next process", lambda: len(harness.gcs.reports) > count)
    assert harness.gcs.reports[count].autoscaler_state_version >= before
    assert harness.gcs.kept is harness.gcs.reports[-1]


async def test_the_cluster_status_is_read_again_after_the_gcs_started_a_new_session(harness):
    async with harness.running():
        await harness.until("a first tick", lambda: harness.ticks)
        asked = harness.gcs.calls["GetClusterStatus"]
        harness.gcs.session = "session_2"
        await asyncio.sleep(20)
    assert (asked, harness.gcs.calls["GetClusterStatus"]) == (1, 2)


@pytest.mark.rule("AS:L-4")
async def test_a_gcs_that_does_not_take_the_report_changes_nothing(harness):
    harness.ask_for(3)
    harness.gcs.errors["ReportAutoscalingState"] = ApiUnavailableError("busy")
    async with harness.running():
        await harness.until("three replicas", lambda: harness.group["replicas"] == 3)
        await asyncio.sleep(20)
    assert {tick.skipped for tick in harness.ticks} == {""}


async def test_a_slow_api_server_and_a_slow_gcs_are_read_side_by_side(harness):
    harness.front.intercept = lambda _m, path, _b: (
        status_error(403) if path.endswith("/rayclusters") else None
    )  # no watch
    harness.front.delay_s = harness.gcs.delay_s = 2.0
    async with harness.running():
        await harness.until("two ticks", lambda: len(harness.ticks) >= 3)
    assert harness.ticks[-1].lasted_s == pytest.approx(2.0, abs=0.2)  # both at once; there is nothing to report


@pytest.mark.rule("D12")
async def test_a_sidecar_killed_at_any_moment_leaves_the_next_one_to_finish(harness):
    harness.ask_for(4)
    for after_s in [0.0005 * step for step in range(12)]:
        async with harness.running():
            await asyncio.sleep(after_s)
    async with harness.running():
        await harness.until("four replicas", lambda: harness.group["replicas"] == 4)
        await asyncio.sleep(20)
    assert harness.group["replicas"] == 4
    assert harness.count("PATCH") <= 2


async def test_a_sidecar_that_is_ended_while_it_reports_tells_its_listeners_what_it_has_done(harness):
    harness.ask_for(3)
    client = fake_gcs(harness.gcs)
    is_reporting = asyncio.Event()

    async def never_answers(_report):
        is_reporting.set()
        await asyncio.Event().wait()

    client.report = never_answers
    async with harness.running(gcs=client):
        await asyncio.wait_for(is_reporting.wait(), 20)
    (tick,) = harness.ticks
    assert tick.patch_result is PatchResult.APPLIED
    assert tick.plan.events  # the next process finds three replicas, and has no event for drivers


async def test_the_state_of_two_ticks_does_not_share_a_snapshot(harness, monkeypatch):
    """The state of a plan is passed to the next one, whatever the outcome of the writes."""
    states, decide = [], looping.reconcile

    def watch(snapshot, state, on_progress):
        states.append(state)
        return replace(
            decide(snapshot, state, on_progress), state=replace(state, report_version=state.report_version + 1)
        )

    monkeypatch.setattr(looping, "reconcile", watch)
    async with harness.running():
        await harness.until("three ticks", lambda: len(harness.ticks) >= 3)
    assert [state.report_version for state in states[:3]] == [0, 1, 2]


async def test_a_patch_that_is_rejected_again_and_again_is_tried_less_and_less(harness):
    harness.ask_for(3)
    harness.front.intercept = lambda method, *_: status_error(403, "Forbidden") if method == "PATCH" else None
    async with harness.running():
        await asyncio.sleep(300)
    assert 5 <= harness.count("PATCH") <= 20


async def test_invalid_values_of_the_gcs_are_logged_once_per_kind(harness, caplog):
    client, version = fake_gcs(harness.gcs), itertools.count(1)
    state = client.state

    async def with_nonsense():
        return replace(
            await state(), problems=(f"demands with invalid resource amounts skipped: {next(version)}, the first is x",)
        )

    client.state = with_nonsense
    async with harness.running(gcs=client):
        await asyncio.sleep(60)
    assert [r.levelname for r in caplog.records if "invalid resource amounts" in r.getMessage()] == ["WARNING"]


async def test_an_exception_in_an_on_tick_callback_does_not_end_the_loop(harness, caplog):
    harness.ask_for(3)
    autoscaler = harness.autoscaler(on_tick=(lambda _tick: 1 / 0, harness.ticks.append))
    task = asyncio.create_task(autoscaler.run())
    await harness.until("three replicas", lambda: harness.group["replicas"] == 3)
    await harness.until("turns after the first", lambda: len(harness.ticks) > 1)
    assert not task.done()
    assert any(record.exc_info for record in caplog.records)
    task.cancel()


def test_the_wire_gives_up_before_the_loop_does():
    assert looping.GCS_S > TIMEOUT_S
