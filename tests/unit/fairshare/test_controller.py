"""The sharing controller on the embedded API, in virtual time, with a small simulated cluster."""

import asyncio

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.config import SharingConfig
from raytide.api.errors import ApiUnavailableError
from raytide.manager.tenant_settings import parse_tenants
from raytide.metrics import REGISTRY
from raytide_sandbox.apiserver.store import Change
from support.faults.types import Answer
from unit.fairshare.harness import JOBS, Stage

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D16")]


async def test_a_job_alone_grows_to_what_the_cluster_holds():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        await asyncio.sleep(1)
        stage.add_job("a", 2, 20)
        asked_at = stage.clock.monotonic()
        await stage.until("a fills the node", lambda: len(stage.placed("a")) == 8)
    assert stage.sizes() == {"a": 8}
    assert stage.writes[0][0] - asked_at <= 1.5
    record = stage.record("a")
    assert record.uid == stage.jobs()["a"].metadata.uid
    assert record.resizes[-1].after == 8


async def test_jobs_meet_at_fair_shares_and_grow_when_one_ends():
    stage = Stage()
    for name in ("one", "two", "three"):
        stage.add_node(name, "4")
    async with stage:
        stage.add_job("a", 2, 10)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 10)
        stage.add_job("b", 4, 10)
        await stage.until("b has its minimum", lambda: len(stage.placed("b")) == 4)
        assert stage.sizes()["a"] == 5, "it gives once: for the minimum, and to a score that is next to that of b"
        assert stage.record("a").resizes[-1].for_job == "default/b"
        stage.edit("a", subresource="/status", status={"conditions": [done(constants.SUCCEEDED)]})
        for name in stage.pods("a"):
            stage.store.delete("pods", "default", name, grace_s=0)
        stage.store.delete(JOBS, "default", "a")
        await stage.until("b grows", lambda: len(stage.placed("b")) == 10)


@pytest.mark.rule("TJ:3.11", "TJ:3.12", "TJ:4")
async def test_a_gang_starts_when_the_pods_that_free_its_capacity_are_gone():
    stage = Stage()
    stage.add_node("one", "16", gpu=8)
    async with stage:
        stage.add_job("a", 2, 8, gpu=1)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 8)
        stage.holds = set(stage.pods("a"))
        stage.add_job("b", 3, 3, gpu=1)
        await stage.until("a gives", lambda: stage.sizes()["a"] == 5)
        await stage.until("b says what it waits for", lambda: stage.waiting().get("b") == constants.AWAITING_CAPACITY)
        assert stage.pods("b") == []
        assert not stage.record("b").is_admitted
        assert stage.sizes()["b"] is None
        stage.holds = set(sorted(stage.holds)[:6])  # one of the three is gone
        await asyncio.sleep(60)
        assert stage.pods("b") == []
        stage.holds = set()
        await stage.until("b begins", lambda: len(stage.placed("b")) == 3)
        assert stage.record("b").is_admitted
        assert stage.record("b").admitted_at is not None
        assert "b" not in stage.waiting()
    assert stage.orders("a")[-1] == 5
    assert stage.orders("b") == [3]


@pytest.mark.rule("TJ:3.11")
async def test_a_gang_that_does_not_fit_waits_and_takes_nothing():
    stage = Stage()
    stage.add_node("one", "16", gpu=4)
    async with stage:
        stage.add_job("a", 4, 4, gpu=1)
        await stage.until("a begins", lambda: len(stage.placed("a")) == 4)
        stage.add_job("b", 1, 2, gpu=1)
        stage.add_job("huge", 1, 2, gpu=64)
        await stage.until("both say why", lambda: set(stage.waiting()) >= {"b", "huge"})
        await asyncio.sleep(120)
        assert stage.pods("b") == stage.pods("huge") == []
        assert stage.waiting()["huge"] == "Unsatisfiable"
        assert stage.orders("a") == [4]


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.19")
async def test_every_patch_names_the_version_it_was_decided_from():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 6)
        await stage.until("a grows", lambda: stage.sizes()["a"] == 6)
    assert stage.writes
    assert all(body["metadata"]["resourceVersion"] for _, _, body in stage.writes)
    assert all(set(body) <= {"metadata", "spec"} for _, _, body in stage.writes)
    assert all(set(body.get("spec", {"trainer": 0})) == {"trainer"} for _, _, body in stage.writes)


@pytest.mark.rule("TJ:3.19")
async def test_an_edit_between_snapshot_and_patch_is_not_overwritten():
    stage = Stage()
    stage.add_node("one", "8")
    seen = stage.wire.on_request

    def edit_first(request):
        seen(request)
        if request.method == "PATCH" and len(stage.writes) == 1:
            stage.edit("a", spec={"trainer": {"max-instance": 3}})

    stage.wire.on_request = edit_first
    async with stage:
        stage.add_job("a", 2, 8)
        await stage.until("a has its new maximum", lambda: len(stage.placed("a")) == 3)
        await asyncio.sleep(60)
    assert stage.sizes() == {"a": 3}
    assert all(note.after <= 3 for note in stage.record("a").resizes)


async def test_a_status_that_was_written_meanwhile_is_no_reason_to_decide_again():
    stage = Stage()
    stage.add_node("one", "8")
    seen = stage.wire.on_request

    def report_first(request):
        seen(request)
        if request.method == "PATCH" and len(stage.writes) == 1:
            stage.edit("a", subresource="/status", status={"phase": "Running"})

    stage.wire.on_request = report_first
    async with stage:
        asked_at = stage.clock.monotonic()
        stage.add_job("a", 2, 8)
        await stage.until("written", lambda: stage.record("a") is not None)
        assert stage.clock.monotonic() - asked_at < 1.6
    versions = [body["metadata"]["resourceVersion"] for _, _, body in stage.writes[:2]]
    assert versions[0] != versions[1]


async def test_own_writes_are_not_given_again_to_a_slow_informer():
    stage = Stage()
    stage.wire._lag_s = lambda: 7.0
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 20)
        stage.add_job("b", 2, 20)
        await stage.until("both grow", lambda: len(stage.placed("a")) == len(stage.placed("b")) == 4)
        await asyncio.sleep(60)
    for name in ("a", "b"):
        notes = stage.record(name).resizes
        assert [note.before for note in notes][1:] == [note.after for note in notes][:-1]
        assert len(stage.orders(name)) == len(set(stage.orders(name)))
    assert_no_version_twice(stage)


async def test_a_write_whose_response_was_lost_is_read_before_the_next_pass():
    stage = Stage()
    stage.add_node("one", "8")
    client = stage.controller.reconciler._writing._client
    patch, lost = client.patch, []

    async def lose_the_first_answer(*args, **options):
        answer = await patch(*args, **options)
        if not lost:
            lost.append(answer)
            raise ApiUnavailableError("cut", is_outcome_unknown=True)
        return answer

    client.patch = lose_the_first_answer
    stage.wire._lag_s = lambda: 20.0
    async with stage:
        stage.add_job("a", 2, 8)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 8)
        await asyncio.sleep(40)
    assert lost
    notes = stage.record("a").resizes
    assert [note.before for note in notes][1:] == [note.after for note in notes][:-1]
    assert_no_version_twice(stage)


async def test_a_job_that_changes_whenever_it_is_written_is_given_up_for_now():
    stage = Stage()
    stage.add_node("one", "8")
    seen = stage.wire.on_request

    def change_first(request):
        seen(request)
        if request.method == "PATCH" and request.path.endswith("/a"):
            stage.edit("a", subresource="/status", status={"trainer": {"ready": len(stage.writes)}})

    stage.wire.on_request = change_first
    async with stage:
        stage.add_job("a", 1, 4)
        stage.add_job("b", 1, 4)
        await stage.until("b grows", lambda: len(stage.placed("b")) == 4)
        await asyncio.sleep(10)
        assert len([job for _, job, _ in stage.writes if job == "a"]) <= 4 * stage.controller.reconciler.passes
        stage.wire.on_request = seen
        await stage.until("a grows", lambda: len(stage.placed("a")) == 4)


async def test_a_refusal_concerns_one_job_only():
    stage = Stage()
    stage.add_node("one", "8")
    stage.wire.admission = lambda request: (
        forbidden("no") if request.method == "PATCH" and request.path.endswith("/a") else None
    )
    async with stage:
        stage.add_job("a", 1, 4)
        stage.add_job("b", 1, 4)
        await stage.until("b grows", lambda: len(stage.placed("b")) == 4)
        assert stage.sizes()["a"] is None
        stage.wire.admission = lambda _request: None
        await stage.until("a is tried again", lambda: len(stage.placed("a")) == 4)


@pytest.mark.rule("RM:F1")
async def test_an_api_that_is_away_stops_everything_until_it_answers():
    stage = Stage()
    stage.add_node("one", "8")
    stage.wire.admission = lambda request: away() if request.method == "PATCH" else None
    async with stage:
        stage.add_job("a", 1, 4)
        await asyncio.sleep(300)
        assert stage.sizes() == {"a": None}
        assert len(stage.writes) <= 60, "it backs off"
        stage.wire.admission = lambda _request: None
        await stage.until("a grows", lambda: len(stage.placed("a")) == 4, within_s=30)


async def test_an_invalid_job_does_not_stop_other_jobs():
    stage = Stage()
    stage.add_node("one", "8")
    for name, spec in (("torn", {"trainer": []}), ("odd", {"trainer": {"min-instance": 5, "max-instance": 2}})):
        stage.store.create(JOBS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    amounts = {"min-instance": 1, "resources": {"requests": {"cpu": "lots"}}}
    stage.store.create(JOBS, {"metadata": {"name": "lots", "namespace": "default"}, "spec": {"trainer": amounts}})
    stage.jobs = lambda: {"a": None}
    stage._control = lambda _job: None
    async with stage:
        stage.add_job("a", 1, 4)
        await stage.until("a is written", lambda: stage.orders("a"))
    assert not [job for _, job, _ in stage.writes if job in {"torn", "odd"}]


@pytest.mark.rule("TJ:3.21")
async def test_kubectl_scale_is_noted_and_not_undone_at_once():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 6)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 6)
        stage.scale("a", 3)
        await stage.until("it is noted", lambda: stage.record("a").resizes[-1].reason == "Requested")
        note = stage.record("a").resizes[-1]
        assert (note.before, note.after, stage.sizes()["a"]) == (6, 3, 3)
        scaled_at = stage.clock.now()
        await stage.until("it grows again", lambda: stage.sizes()["a"] == 6)
        assert 30 <= (stage.clock.now() - scaled_at).total_seconds() <= 35


@pytest.mark.rule("TJ:3.21")
async def test_a_size_beyond_the_bounds_is_put_right():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 6)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 6)
        stage.scale("a", 60)
        await stage.until("it is within its bounds", lambda: stage.sizes()["a"] == 6)
        assert len(stage.pods("a")) == 6
        stage.edit("a", spec={"trainer": {"max-instance": 4}})
        await stage.until("and within new bounds", lambda: stage.sizes()["a"] == 4)
    assert [note.reason for note in stage.record("a").resizes][-2:] == ["Growing", "AboveMaximum"]


async def test_in_steady_state_nothing_is_written_or_planned():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 6)
        stage.add_job("b", 6, 6, cpu="4")  # optimistic: never fits
        await stage.until("a grows", lambda: len(stage.placed("a")) >= 2)
        await asyncio.sleep(120)
        passes, writes = stage.controller.reconciler.passes, len(stage.writes)
        await asyncio.sleep(900)
        assert len(stage.writes) == writes
        assert stage.controller.reconciler.passes <= passes + 2


async def test_a_burst_of_events_is_at_most_four_passes():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 2)
        await stage.until("a begins", lambda: len(stage.placed("a")) == 2)
        await asyncio.sleep(60)
        passes = stage.controller.reconciler.passes
        for number in range(60):
            stage.add_pod(f"pod-{number}", "1m", nodeName="one")
            await asyncio.sleep(0.01)
        await asyncio.sleep(5)
        assert 1 <= stage.controller.reconciler.passes - passes <= 4


# --- read permissions -------------------------------------------------------------------------------------------------


async def test_pods_and_nodes_are_followed_only_while_there_is_a_job():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        await asyncio.sleep(60)
        assert not [path for path in stage.counted if path.endswith(("/pods", "/nodes", "/resourcequotas"))]
        assert stage.controller.is_synced
        stage.add_job("a", 2, 2)
        await stage.until("a begins", lambda: len(stage.placed("a")) == 2)
        assert len(stage.controller.capacity.pods) == 2
        stage.store.delete(JOBS, "default", "a")
        await stage.until("no watch is open any more", lambda: len(stage.controller.capacity.pods) == 0)
        counted = dict(stage.counted)
        await asyncio.sleep(300)
        assert {p: n for p, n in stage.counted.items() if p.endswith(("/pods", "/nodes"))} == {
            p: n for p, n in counted.items() if p.endswith(("/pods", "/nodes"))
        }


@pytest.mark.parametrize("what", ["nodes", "pods"])
async def test_without_permission_to_read_every_job_gets_its_minimum_and_the_list_is_retried(what):
    stage = Stage()
    stage.add_node("one", "8", gpu=4)
    stage.wire.admission = lambda request: (
        forbidden(f"may not list {what}") if request.method == "GET" and request.path == f"/api/v1/{what}" else None
    )
    async with stage:
        stage.add_job("a", 2, 6)
        stage.add_job("gang", 2, 4, gpu=1)
        await stage.until("both say so", lambda: stage.waiting() == dict.fromkeys(("a", "gang"), "CapacityUnknown"))
        await stage.until("both begin", lambda: len(stage.placed("a")) == len(stage.placed("gang")) == 2)
        assert stage.sizes() == {"a": 2, "gang": 2}
        assert "may not list" in stage.record("a").waiting.message
        assert stage.controller.is_synced
        stage.wire.admission = lambda _request: None
        await stage.until("they grow", lambda: len(stage.placed("gang")) + len(stage.placed("a")) == 8, within_s=90)
        assert "CapacityUnknown" not in stage.waiting().values()


async def test_leave_that_is_withdrawn_stops_growth_and_nothing_else():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 6)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 6)
        stage.wire.admission = lambda request: forbidden("no more") if request.path == "/api/v1/nodes" else None
        await stage.until("the error is reported", lambda: stage.controller.capacity.error != "", within_s=60)
        stage.edit("a", spec={"trainer": {"max-instance": 8}})
        await stage.until("a has the reason", lambda: stage.waiting() == {"a": "CapacityUnknown"})
        await asyncio.sleep(60)
        assert stage.sizes() == {"a": 6}, "what it has stays"


async def test_without_leave_to_read_quotas_and_priorities_jobs_share_all_the_same():
    stage = Stage()
    stage.add_node("one", "8")
    stage.wire.admission = lambda request: (
        forbidden("no") if request.path.endswith(("/resourcequotas", "/priorityclasses")) else None
    )
    async with stage:
        stage.add_job("a", 2, 6)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 6)


@pytest.mark.rule("FD:SEC-F5")
async def test_quotas_are_read_where_only_the_watched_namespaces_allow_it():
    stage = Stage(namespaces=("default", "other"))
    stage.add_node("one", "8")
    stage.wire.admission = lambda request: forbidden("no") if request.path == "/api/v1/resourcequotas" else None
    add_quota(stage, "3")
    async with stage:
        stage.add_job("a", 1, 8)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 3)
        await asyncio.sleep(90)
        assert len(stage.pods("a")) == 3
        assert stage.controller.check() == (True, "all required resources can be read")


@pytest.mark.rule("FD:SEC-F5")
async def test_an_unreadable_quota_is_in_the_log_and_in_readiness_and_is_retried(caplog):
    stage = Stage(namespaces=("default", "other"))
    stage.add_node("one", "8")
    refused = "/api/v1/namespaces/default/resourcequotas"
    stage.wire.admission = lambda request: forbidden("no") if request.path == refused else None
    add_quota(stage, "3")
    words = "resourcequotas in namespace default cannot be read"
    async with stage:
        stage.add_job("a", 1, 3)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 3)
        await asyncio.sleep(120)
        assert [record.levelname for record in caplog.records if words in record.message] == ["WARNING"]
        assert stage.controller.check()[0]
        assert words in stage.controller.check()[1]
        assert stage.controller.capacity.is_known
        stage.wire.admission = lambda _request: None
        await stage.until("it is read", lambda: len(stage.controller.capacity.quotas) == 1, within_s=60)
        stage.edit("a", spec={"trainer": {"max-instance": 8}})
        await asyncio.sleep(90)
        assert len(stage.pods("a")) == 3, "the quota counts as soon as it may be read"
        assert words not in stage.controller.check()[1]


@pytest.mark.rule("FD:SEC-F5")
async def test_a_quota_stops_counting_when_it_may_no_longer_be_read():
    stage = Stage(namespaces=("default",))
    stage.add_node("one", "8")
    add_quota(stage, "3")
    async with stage:
        stage.add_job("a", 1, 8)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 3)
        stage.wire.admission = lambda request: forbidden("no") if request.path.endswith("/resourcequotas") else None
        await stage.until("a grows further", lambda: len(stage.placed("a")) == 8)
        assert stage.controller.capacity.unreadable


@pytest.mark.rule("TJ:3.14")
async def test_a_quota_bounds_growth():
    stage = Stage()
    stage.add_node("one", "8")
    add_quota(stage, "3")
    async with stage:
        stage.add_job("a", 1, 8)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 3)
        await asyncio.sleep(90)
        assert len(stage.pods("a")) == 3


# --- terms -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("D10")
async def test_writes_happen_only_while_leading_and_continue_in_a_new_term():
    stage = Stage()
    stage.add_node("one", "8")
    stage.add_job("a", 2, 6)
    following = asyncio.create_task(stage.controller.run_informers())
    living = asyncio.create_task(stage._live())
    await asyncio.sleep(60)
    assert stage.writes == []
    leading = asyncio.create_task(stage.controller.run_reconcilers())
    await stage.until("a grows", lambda: len(stage.placed("a")) == 6)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    writes = len(stage.writes)
    stage.scale("a", 3)
    await asyncio.sleep(60)
    assert len(stage.writes) == writes
    leading = asyncio.create_task(stage.controller.run_reconcilers())
    await stage.until("it is noted", lambda: stage.record("a").resizes[-1].reason == "Requested")
    await stage.controller.stop()
    await asyncio.wait_for(leading, 10)
    for task in (following, living):
        task.cancel()
    await asyncio.gather(following, living, return_exceptions=True)


@pytest.mark.rule("D10")
async def test_the_series_of_free_capacity_end_with_the_term():
    stage = Stage()
    stage.add_node("one", "8")
    stage.add_job("a", 2, 6)
    background = [asyncio.create_task(stage.controller.run_informers()), asyncio.create_task(stage._live())]
    leading = asyncio.create_task(stage.controller.run_reconcilers())
    await stage.until("a grows", lambda: len(stage.placed("a")) == 6)
    assert free_cpu() is not None
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert free_cpu() is None
    for task in background:
        task.cancel()
    await asyncio.gather(*background, return_exceptions=True)


def free_cpu() -> float | None:
    return REGISTRY.get_sample_value("pool_free", {"resource": "cpu"})


def assert_no_version_twice(stage: Stage) -> None:
    """Nothing was decided from a state of which we knew that it was the past."""
    versions = [(job, body["metadata"]["resourceVersion"]) for _, job, body in stage.writes]
    assert len(set(versions)) == len(versions)


# --- words -------------------------------------------------------------------------------------------------------------


def done(kind: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def forbidden(message: str) -> Answer:
    return Answer(403, message=message)


def away() -> Answer:
    return Answer(503)


def add_quota(stage: Stage, cpus: str) -> None:
    """For the CPUs of a job `a`, counted as its pods come and go."""
    hard = {"requests.cpu": cpus}
    metadata = {"name": "small", "namespace": "default"}
    status = {"hard": hard, "used": {"requests.cpu": "0"}}
    stage.store.create("resourcequotas", {"metadata": metadata, "spec": {"hard": hard}, "status": status})
    stage.store.subscribe(lambda change: count(stage, change), "pods")


def count(stage: Stage, change: Change) -> None:
    """What a quota controller does."""
    del change
    used = sum(1 for name in stage.pods("a"))
    entry = stage.store.find("resourcequotas", "default", "small")
    obj = entry.obj()
    obj["status"]["used"] = {"requests.cpu": str(used)}
    stage.store.update("resourcequotas", obj, subresource="status")


# --- tenants ---------------------------------------------------------------------------------------------------------------


TENANTS = SharingConfig(
    tenants=parse_tenants("[{name: a, nominalQuota: {cpu: 2}, borrowingLimit: {cpu: 1}}, {name: b}]")
)


@pytest.mark.rule("TJ:7.13", "D25")
async def test_a_label_of_a_namespace_counts_as_soon_as_it_is_there():
    stage = Stage(config=TENANTS)
    stage.add_node("one", "8")
    stage.label_namespace("default", "a")
    async with stage:
        stage.add_job("a", 1, 8)
        await stage.until("a grows to its limit", lambda: len(stage.placed("a")) == 3)
        await asyncio.sleep(60)
        assert stage.sizes() == {"a": 3}
        assert stage.waiting() == {"a": "QuotaExceeded"}
        stage.label_namespace("default", None)
        await stage.until("it belongs to no tenant", lambda: len(stage.placed("a")) == 8)


@pytest.mark.rule("TJ:7.13", "D25", "FD:SEC-F7")
async def test_two_tenants_share_and_do_not_see_names_of_the_other():
    stage = Stage(config=SharingConfig(tenants=parse_tenants("[{name: secret-one}, {name: secret-two}]")))
    stage.add_node("one", "12")
    stage.label_namespace("team-one", "secret-one")
    stage.label_namespace("team-two", "secret-two")
    async with stage:
        stage.add_job("old", 1, 12, namespace="team-one")
        await stage.until("it has all", lambda: len(stage.placed("old")) == 12)
        await asyncio.sleep(60)
        stage.add_job("new", 1, 12, namespace="team-two")
        await stage.until("they are even", lambda: len(stage.placed("new")) == len(stage.placed("old")) == 6)
        texts = [note.message for name in ("old", "new") for note in stage.record(name).resizes]
        texts += [note.message for name in ("old", "new") if (note := stage.record(name).waiting)]
        assert "ScaledDown 12→6 for a job of another namespace" in " ".join(texts)
        assert not any("secret" in text for text in texts)


@pytest.mark.rule("TJ:7.13", "D25")
async def test_without_access_to_namespaces_tenants_lose_nothing_to_each_other():
    """Sharing without tenants would give one tenant what belongs to another."""
    stage = Stage(config=TENANTS)
    stage.add_node("one", "8")
    stage.label_namespace("default", "a")
    stage.wire.admission = lambda request: forbidden("may not list") if request.path.endswith("/namespaces") else None
    async with stage:
        stage.add_job("a", 2, 8)
        await stage.until("it says so", lambda: stage.waiting() == {"a": "CapacityUnknown"})
        assert "namespaces cannot be read" in stage.record("a").waiting.message
        await asyncio.sleep(60)
        assert stage.sizes() == {"a": 2}
        stage.wire.admission = lambda _request: None
        await stage.until("it grows to its limit", lambda: len(stage.placed("a")) == 3, within_s=90)


async def test_without_tenants_namespaces_are_not_read():
    stage = Stage()
    stage.add_node("one", "8")
    async with stage:
        stage.add_job("a", 2, 8)
        await stage.until("a grows", lambda: len(stage.placed("a")) == 8)
        assert not any(path.endswith("/namespaces") for path in stage.counted)
