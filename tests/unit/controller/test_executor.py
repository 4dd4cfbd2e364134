"""One test per bullet of `Executor`'s contract, in virtual time."""

import asyncio
import contextlib
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from raytide.api.actions import Create, Delete, Patch, Result
from raytide.api.errors import ApiUnavailableError
from raytide.api.meta import PODS, SERVICES, Key
from raytide.controller.action_runner import ActionRunner
from raytide.controller.executor import ApplyResult, Executor
from raytide.controller.expectations import Expectations, ViewDecoder
from raytide.kube.client import Client
from raytide.runtime.clock import Clock
from support import virtual_time
from unit.kube.scripted import Call, ScriptedTransport, answer, status_error

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D7")]
KEY, OTHER, OWNER = Key("ns", "c"), Key("ns", "d"), "owner-1"


@dataclass(frozen=True)
class View:
    name: str
    uid: str
    is_terminating: bool = False
    version: str = field(default="", compare=False)
    group: str = field(default="", compare=False)


def view_of(manifest) -> View:
    metadata = manifest["metadata"]
    group = metadata.get("labels", {}).get("group", "")
    return View(metadata["name"], metadata.get("uid", ""), version=metadata.get("resourceVersion", ""), group=group)


class Env:
    def __init__(self) -> None:
        self.wire = ScriptedTransport(responder=stored)
        self.version = 0
        self.overlay = Expectations(
            clock=Clock(),
            reader=ViewDecoder(lambda body: view_of(msgspec.json.decode(body)), view_of),
            version_of=lambda view: view.version,
            name_of=lambda view: view.name,
            uid_of=lambda view: view.uid,
            as_terminating=lambda view: replace(view, is_terminating=True),
            informer_version=lambda namespace: self.version,
            ask_relist=lambda: None,
        )
        client = Client(self.wire, clock=Clock())
        self.is_contended = False
        overlays = {PODS: self.overlay}
        self.executor = Executor(
            client, clock=Clock(), overlays=overlays, slots=64, is_contended=lambda: self.is_contended
        )

    async def apply(self, *actions, key: Key = KEY):
        return await self.executor.apply(actions, key=key, owner_uid=OWNER)

    def in_flight(self, *seen: View) -> tuple[View, ...]:
        return self.overlay.overlay(KEY, OWNER, seen)


@pytest.fixture
def env() -> Env:
    return Env()


def stored(call: Call):
    if call.method == "POST":
        metadata = call.json["metadata"]
        return answer({"metadata": {**metadata, "uid": "uid-" + metadata["name"], "resourceVersion": "50"}})
    return answer({"metadata": {"name": call.path.rsplit("/", 1)[1], "uid": "u", "resourceVersion": "50"}})


def create(name: str, group: str = "g") -> Create:
    metadata = {
        "namespace": "ns",
        "name": name,
        "labels": {"group": group},
        "ownerReferences": [{"uid": OWNER}],
    }
    return Create(PODS, {"metadata": metadata}, "Created", "FailedToCreate", group)


def delete(name: str, uid: str = "u") -> Delete:
    return Delete(PODS, "ns", name, uid, "Deleted")


def exists(name: str, *, owner: str = OWNER, group: str = "g", **more):
    return answer(
        {
            "metadata": {
                "name": name,
                "uid": "live",
                "resourceVersion": "40",
                "labels": {"group": group, "added": "by a webhook"},
                "ownerReferences": [{"uid": owner}],
                **more,
            }
        }
    )


async def test_every_action_has_one_outcome_in_the_order_of_the_plan(env):
    actions = [create("a"), delete("b"), Patch(SERVICES, "ns", "s", "u", {"spec": {}}), create("c")]
    done = await env.apply(*actions)
    assert [outcome.action for outcome in done.outcomes] == actions
    assert {outcome.result for outcome in done.outcomes} == {Result.DONE}
    assert [view.uid for view in env.in_flight()] == ["uid-a", "uid-c"]


@pytest.mark.rule("RM:F11", "RM:I1")
@pytest.mark.parametrize("is_deleted", [True, False], ids=["the pod is deleted", "the delete is not answered"])
async def test_a_created_pod_without_its_labels_is_deleted_again_and_rejected(env, *, is_deleted):
    """A webhook removed a label: no informer shows the pod, and each pass would create another one."""

    def unlabeled(call: Call):
        if call.method == "DELETE" and not is_deleted:
            raise ApiUnavailableError("no answer", is_outcome_unknown=True)
        if call.method == "DELETE":
            return stored(call)
        metadata = {name: value for name, value in call.json["metadata"].items() if name != "labels"}
        return answer({"metadata": {**metadata, "uid": "uid-a", "resourceVersion": "50"}})

    env.overlay.reader = replace(env.overlay.reader, identity_of=lambda view: {"group": view.group})
    env.wire.responder = unlabeled
    done = await env.apply(create("a"))
    outcome = done.outcomes[0]
    assert (outcome.result, outcome.reason) == (Result.REJECTED, "Invalid")
    assert outcome.message.startswith("admission removed or changed group of Pod a")
    assert env.in_flight() == ()
    delete_call = env.wire.calls[-1]
    assert (delete_call.method, delete_call.json["preconditions"]) == ("DELETE", {"uid": "uid-a"})


async def test_a_pass_opens_slowly_up_to_32_at_a_time(env):
    env.wire.takes_s = 0.1
    widest = []

    def note(call: Call):
        widest.append(env.wire.in_flight)
        return stored(call)

    env.wire.responder = note
    await env.apply(*(create(f"p{i}") for i in range(100)))
    assert widest[0] == 1
    assert env.wire.most_in_flight == 32


async def test_a_service_in_flight_does_not_delay_the_first_pod(env):
    env.wire.takes_s = 0.1
    sent = []

    def note(call: Call):
        sent.append((call.path.rsplit("/", 1)[1], virtual_time.elapsed_s()))
        return stored(call)

    env.wire.responder = note
    service = Create(SERVICES, {"metadata": {"namespace": "ns", "name": "s"}}, "Created", "FailedToCreate")
    await env.apply(service, create("head", "head"), create("worker"))
    (first, begun_at), (second, head_at), (_, worker_at) = sent
    assert (first, second) == ("services", "pods")
    assert head_at == begun_at
    assert worker_at > head_at, "slow start applies between pods"


async def test_keys_get_the_slots_in_round_robin_order(env):
    client = Client(env.wire, clock=Clock())
    env.wire.takes_s = 0.1
    executor = Executor(client, clock=Clock(), overlays={}, slots=1)
    big = asyncio.create_task(executor.apply([create(f"p{i}") for i in range(15)], key=KEY, owner_uid=OWNER))
    await asyncio.sleep(0.55)
    before = virtual_time.elapsed_s()
    await executor.apply([create("small")], key=OTHER, owner_uid=OWNER)
    assert virtual_time.elapsed_s() - before < 0.31
    await big


async def test_a_rejection_skips_further_creates_of_its_group_and_nothing_else(env):
    def quota(call: Call):
        is_g = call.method == "POST" and call.json["metadata"]["labels"]["group"] == "g"
        return status_error(403, "Forbidden", "exceeded quota") if is_g else stored(call)

    env.wire.responder = quota
    done = await env.apply(create("a"), create("b"), create("c"), create("x", "h"), delete("y"))
    assert [outcome.result for outcome in done.outcomes] == [
        Result.REJECTED,
        Result.SKIPPED,
        Result.SKIPPED,
        Result.DONE,
        Result.DONE,
    ]
    assert (done.outcomes[0].reason, done.outcomes[0].message) == ("Forbidden", "exceeded quota")
    assert [view.name for view in env.in_flight(View("y", "u"))] == ["y", "x"]
    assert not done.is_cut_short


@pytest.mark.rule("RM:I13")
async def test_a_rejected_patch_skips_further_ones_of_its_group(env):
    """Without the permission to patch pods a resize of many trainers sends one request per pass, not one per trainer."""
    env.wire.responder = lambda call: status_error(403, "Forbidden") if call.method == "PATCH" else stored(call)
    patches = [Patch(PODS, "ns", f"p{i}", f"u{i}", {"metadata": {}}, group="(announcement)") for i in range(50)]
    done = await env.apply(*patches, Patch(SERVICES, "ns", "s", "u", {"spec": {}}), create("x", "h"))
    results = [outcome.result for outcome in done.outcomes]
    assert results == [Result.REJECTED] + [Result.SKIPPED] * 49 + [Result.REJECTED, Result.DONE]
    assert sum(call.method == "PATCH" for call in env.wire.calls) == 2


@pytest.mark.rule("RM:I13")
async def test_rejected_deletes_do_not_cut_a_pass_short_and_delay_no_other_group(env):
    env.wire.takes_s = 0.1
    env.wire.responder = lambda call: status_error(403, "Forbidden") if call.method == "DELETE" else stored(call)
    done = await env.apply(*(delete(f"p{i}", f"u{i}") for i in range(300)))
    results = [outcome.result for outcome in done.outcomes]
    assert results == [Result.REJECTED] * 10 + [Result.SKIPPED] * 290
    assert not done.is_cut_short
    done = await env.apply(*(delete(f"p{i}", f"u{i}") for i in range(300)), create("x", "h"))
    assert done.outcomes[-1].result is Result.DONE


@pytest.mark.rule("RM:I13")
async def test_a_pass_without_a_successful_write_is_not_cut_short(env):
    env.wire.takes_s = 0.5
    env.wire.responder = lambda _call: status_error(403, "Forbidden")
    done = await env.apply(*(create(f"p{i}", f"g{i}") for i in range(50)))
    assert done.outcomes[-1].result is Result.SKIPPED
    assert not done.is_cut_short


async def test_a_create_that_met_another_at_a_quota_is_no_rejection(env):
    env.wire.answers.append(status_error(409, "Conflict", "resourcequotas: the object has been modified"))
    done = await env.apply(create("a"), create("b"))
    assert [outcome.result for outcome in done.outcomes] == [Result.UNAVAILABLE, Result.DONE]
    assert [view.name for view in env.in_flight()] == ["b"]


async def test_a_thousand_skipped_creates_do_not_use_up_the_budget_of_the_next_group(env):
    def quota(call: Call):
        return status_error(403, "Forbidden") if call.json["metadata"]["labels"]["group"] == "g" else stored(call)

    env.wire.responder = quota
    done = await env.apply(*(create(f"p{i}") for i in range(1000)), create("x", "h"))
    assert done.outcomes[-1].result is Result.DONE
    assert len(env.wire.calls) < 5


async def test_three_calls_without_a_response_end_the_pass_without_cutting_it_short(env):
    env.wire.responder = lambda call: status_error(429, headers={"retry-after": "9"})
    done = await env.apply(*(create(f"p{i}", f"g{i}") for i in range(10)))
    results = [outcome.result for outcome in done.outcomes]
    assert results == [Result.UNAVAILABLE] * 3 + [Result.SKIPPED] * 7
    assert done.retry_after_s == 9
    assert not done.is_cut_short
    assert env.in_flight() == ()


async def test_a_terminating_namespace_ends_the_pass_quietly(env):
    env.wire.responder = lambda call: status_error(
        403, "Forbidden", "gone", details={"causes": [{"reason": "NamespaceTerminating"}]}
    )
    done = await env.apply(create("a"), delete("b"))
    assert [outcome.result for outcome in done.outcomes] == [Result.SKIPPED] * 2
    assert len(env.wire.calls) == 1


@pytest.mark.parametrize(("is_contended", "most"), [(True, 200), (False, 500)], ids=["in a crowd", "alone"])
async def test_a_pass_ends_after_a_number_of_actions_and_the_next_continues_without_slow_start(env, is_contended, most):
    env.is_contended = is_contended
    done = await env.apply(*(create(f"p{i}") for i in range(600)))
    assert done.is_cut_short
    assert len(list(done.of(Result.DONE))) == most
    assert len(list(done.of(Result.SKIPPED))) == 600 - most
    env.is_contended = False
    env.wire.takes_s, env.wire.most_in_flight = 0.1, 0
    await env.apply(*(create(f"q{i}") for i in range(40)))
    assert env.wire.most_in_flight == 32


async def test_a_pass_ends_after_two_seconds(env):
    env.wire.takes_s = 0.5
    done = await env.apply(*(create(f"p{i}") for i in range(100)))
    assert done.is_cut_short
    assert virtual_time.elapsed_s() < 3


async def test_a_pass_that_ended_because_of_a_timeout_is_not_cut_short(env):
    env.wire.takes_s = 2.5
    env.wire.answers.append(ApiUnavailableError("no answer in 2 s", is_outcome_unknown=True))
    done = await env.apply(create("a", "g"), create("b", "h"))
    assert [outcome.result for outcome in done.outcomes] == [Result.UNKNOWN, Result.SKIPPED]
    assert not done.is_cut_short


@pytest.mark.rule("FD:REL-11", "RM:I13")
async def test_a_pass_with_an_unanswered_call_backs_off_although_its_budget_ended_and_others_succeeded(env):
    env.wire.answers.append(status_error(429))
    done = await env.apply(*(create(f"p{i}") for i in range(600)))
    assert [done.outcomes[0].result, done.outcomes[1].result] == [Result.UNAVAILABLE, Result.DONE]
    assert done.outcomes[-1].result is Result.SKIPPED
    assert not done.is_cut_short


@pytest.mark.rule("D6")
async def test_writes_are_in_the_overlay_before_they_are_sent(env):
    planned = []

    def is_get(call: Call):
        planned.append(env.in_flight(View("b", "u")))
        return stored(call)

    env.wire.responder = is_get
    await env.apply(create("a"), delete("b"))
    assert planned[0] == (View("b", "u"), View("a", ""))
    assert planned[1] == (View("b", "u", is_terminating=True), View("a", "uid-a"))


@pytest.mark.rule("D6")
async def test_an_unknown_outcome_stays_in_the_overlay_and_is_repeated_under_the_same_name(env):
    env.wire.answers.append(ApiUnavailableError("reset", is_outcome_unknown=True))
    done = await env.apply(create("a"))
    assert done.outcomes[0].result is Result.UNKNOWN
    assert env.in_flight() == (View("a", ""),)
    (again,) = env.overlay.due(KEY, OWNER)
    env.wire.answers += [status_error(409, "AlreadyExists"), exists("a")]
    done = await env.apply(again)
    assert done.outcomes[0].result is Result.DONE
    assert env.in_flight() == (View("a", "live"),)


@pytest.mark.rule("D6")
async def test_a_cancelled_pass_leaves_its_writes_with_an_unknown_outcome(env):
    env.wire.takes_s = 5
    task = asyncio.create_task(env.apply(create("a")))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert env.overlay.is_outcome_unknown(KEY, OWNER, create("a"))


@pytest.mark.rule("D15")
async def test_a_repeat_that_is_rejected_does_not_hide_that_the_first_one_worked(env):
    env.wire.answers.append(ApiUnavailableError("reset", is_outcome_unknown=True))
    await env.apply(create("a"))
    env.wire.answers += [status_error(403, "Forbidden", "exceeded quota"), exists("a")]
    await env.apply(create("a"))
    assert [view.name for view in env.in_flight()] == ["a"]


@pytest.mark.rule("D15")
async def test_a_repeat_that_is_rejected_ends_the_first_one_once_it_can_no_longer_be_carried_out(env):
    rejected = [status_error(403, "Forbidden", "exceeded quota"), status_error(404, "NotFound")]
    env.wire.answers += [ApiUnavailableError("reset", is_outcome_unknown=True), *rejected]
    await env.apply(create("a"))
    await env.apply(create("a"))
    assert [view.name for view in env.in_flight()] == ["a"]
    await asyncio.sleep(60)
    env.wire.answers += rejected
    await env.apply(create("a"))
    assert env.in_flight() == ()


@pytest.mark.rule("D6")
async def test_a_repeat_that_did_not_happen_leaves_the_outcome_of_the_first_one_unknown(env):
    env.wire.answers.append(ApiUnavailableError("reset", is_outcome_unknown=True))
    await env.apply(create("a"))
    env.wire.answers.append(status_error(429))
    await env.apply(create("a"))
    assert [view.name for view in env.in_flight()] == ["a"]


@pytest.mark.rule("D15")
@pytest.mark.parametrize(
    ("live", "result", "in_flight"),
    [
        pytest.param(exists("a"), Result.DONE, ["live"], id="own: its uid is added to the overlay"),
        pytest.param(exists("a", owner="another"), Result.REJECTED, [], id="another owner's"),
        pytest.param(exists("a", group="h"), Result.REJECTED, [], id="another group's"),
        pytest.param(exists("a", deletionTimestamp="now"), Result.UNAVAILABLE, [], id="terminating"),
        pytest.param(status_error(404, "NotFound"), Result.UNAVAILABLE, [], id="gone in between"),
    ],
)
@pytest.mark.parametrize("is_repeat", [False, True], ids=["first time", "repeated"])
async def test_a_create_that_finds_its_name_taken(env, live, result, in_flight, is_repeat):
    if is_repeat:
        env.wire.answers.append(ApiUnavailableError("reset", is_outcome_unknown=True))
        await env.apply(create("a"))
    env.wire.answers += [status_error(409, "AlreadyExists", "pods a already exists"), live]
    if is_repeat and result is Result.REJECTED:
        env.wire.answers.append(live)
    done = await env.apply(create("a"))
    assert done.outcomes[0].result is result
    assert [view.uid for view in env.in_flight()] == in_flight


@pytest.mark.rule("RM:I5")
@pytest.mark.parametrize(
    ("answers", "result"),
    [
        pytest.param([status_error(404, "NotFound")], Result.DONE, id="what is gone is done"),
        pytest.param(
            [status_error(409, "Conflict"), exists("a")], Result.DONE, id="what is another object by now is done"
        ),
        pytest.param(
            [status_error(409, "Conflict"), status_error(404)], Result.DONE, id="what vanished meanwhile is done"
        ),
        pytest.param(
            [status_error(409, "Conflict"), exists("a", uid="u")], Result.UNAVAILABLE, id="a real conflict is not"
        ),
        pytest.param([status_error(403, "Forbidden")], Result.REJECTED, id="what is forbidden is not"),
    ],
)
async def test_a_delete(env, answers, result):
    env.wire.answers += answers
    done = await env.apply(delete("a"))
    assert done.outcomes[0].result is result
    assert env.in_flight(View("a", "u"))[0].is_terminating is (result is Result.DONE)


async def test_a_patch_carries_the_uid_it_means(env):
    await env.apply(Patch(SERVICES, "ns", "s", "u", {"metadata": {"labels": {"a": "b"}}, "spec": {}}))
    assert env.wire.calls[0].json == {"metadata": {"labels": {"a": "b"}, "uid": "u"}, "spec": {}}


async def test_a_patch_carries_the_version_from_which_it_was_computed(env):
    await env.apply(Patch(SERVICES, "ns", "s", "u", {"metadata": {"finalizers": ["a"]}}, version="7"))
    expected = {"metadata": {"finalizers": ["a"], "uid": "u", "resourceVersion": "7"}}
    assert env.wire.calls[0].json == expected


@pytest.mark.rule("FD:RC-B1")
@pytest.mark.parametrize(
    ("version", "response", "result"),
    [
        pytest.param("7", status_error(409, "Conflict"), Result.UNAVAILABLE, id="a conflict means: look again"),
        pytest.param("", status_error(409, "Conflict"), Result.UNAVAILABLE, id="so it does without a version"),
        pytest.param("7", status_error(404, "NotFound"), Result.UNAVAILABLE, id="the version is gone: look again"),
        pytest.param("", status_error(404, "NotFound"), Result.REJECTED, id="what is gone cannot be patched"),
        pytest.param("7", status_error(403, "Forbidden"), Result.REJECTED, id="what is forbidden is rejected"),
    ],
)
async def test_a_patch_that_meets_another_write(env, version, response, result):
    env.wire.answers.append(response)
    done = await env.apply(Patch(SERVICES, "ns", "s", "u", {"spec": {}}, version=version))
    assert done.outcomes[0].result is result


@pytest.mark.rule("D6")
async def test_what_a_patch_made_of_an_object_is_in_the_overlay(env):
    env.wire.answers.append(exists("a", uid="u"))
    await env.apply(Patch(PODS, "ns", "a", "u", {"metadata": {"labels": {"a": "b"}}}))
    env.version = 39
    assert env.in_flight(View("a", "u", version="39"))[0].version == "40"


@pytest.mark.rule("D6")
@pytest.mark.parametrize(
    ("live", "after_s", "uids_in_flight"),
    [
        pytest.param(exists("a"), 0, ["live"], id="it happened: it counts, and can be deleted by its uid"),
        pytest.param(
            status_error(404, "NotFound"),
            0,
            [""],
            id="not there, but it may still be executed: its outcome stays unknown",
        ),
        pytest.param(status_error(404, "NotFound"), 59, [""], id="not there a minute later, not quite"),
        pytest.param(
            status_error(404, "NotFound"), 61, [], id="not there, and too late: nothing is in flight any more"
        ),
        pytest.param(exists("a", owner="else"), 0, [], id="the name is another owner's: no own create is in flight"),
        pytest.param(ApiUnavailableError("away"), 0, [""], id="no response: its outcome stays unknown"),
        pytest.param(ApiUnavailableError("away"), 61, [""], id="no response a minute later: its outcome stays unknown"),
    ],
)
async def test_an_unwanted_create_of_unknown_outcome_is_read_and_not_repeated(env, live, after_s, uids_in_flight):
    env.wire.responder = lambda call: ApiUnavailableError("lost", is_outcome_unknown=True)
    await env.apply(create("a"))
    await asyncio.sleep(after_s)
    env.wire.responder = lambda call: live
    sent = len(env.wire.calls)
    is_answered = not isinstance(live, ApiUnavailableError)
    with contextlib.nullcontext() if is_answered else pytest.raises(ApiUnavailableError):
        await env.executor.look_for(create("a"), key=KEY, owner_uid=OWNER)
    assert {call.method for call in env.wire.calls[sent:]} == {"GET"}
    assert [view.uid for view in env.in_flight()] == uids_in_flight


@pytest.mark.rule("D6")
async def test_a_create_of_unknown_outcome_is_read_every_30_seconds_for_a_minute(env):
    env.wire.responder = lambda call: ApiUnavailableError("lost", is_outcome_unknown=True)
    await env.apply(create("a"))
    env.wire.responder = lambda call: status_error(404, "NotFound")
    reads = 0
    while env.in_flight():
        await asyncio.sleep(env.overlay.requeue_after_s(KEY))
        await env.executor.look_for(create("a"), key=KEY, owner_uid=OWNER)
        reads += 1
    assert reads == 3  # after 0, 30 and 60 s


@pytest.mark.rule("D6")
async def test_creates_of_unknown_outcome_wait_while_an_unwanted_one_of_their_group_is_read(env):
    runner = ActionRunner(Client(env.wire, clock=Clock()), clock=Clock(), overlays={PODS: env.overlay})
    env.wire.responder = lambda call: ApiUnavailableError("lost", is_outcome_unknown=True)
    await runner.apply(KEY, OWNER, [create("a"), create("b"), create("c", group="h")])
    env.wire.responder = lambda call: exists("b")
    again = await runner.due_retries(KEY, OWNER, [], {"b"})
    assert [action.name for action in again] == ["c"]
    assert runner.requeue_after_s(KEY, ApplyResult(()), (), is_continued=False) == 0, (
        "it was planned without this answer"
    )
    again = await runner.due_retries(KEY, OWNER, [])
    assert [action.name for action in again] == ["a", "c"]


@pytest.mark.rule("D6")
async def test_a_create_that_is_given_up_for_good_is_planned_without_at_once(env):
    runner = ActionRunner(Client(env.wire, clock=Clock()), clock=Clock(), overlays={PODS: env.overlay})
    env.wire.responder = lambda call: ApiUnavailableError("lost", is_outcome_unknown=True)
    await runner.apply(KEY, OWNER, [create("a")])
    env.wire.responder = lambda call: status_error(404, "NotFound")
    await runner.due_retries(KEY, OWNER, [], {"a"})
    assert runner.requeue_after_s(KEY, ApplyResult(()), (), is_continued=False) == 30
    await asyncio.sleep(61)
    await runner.due_retries(KEY, OWNER, [], {"a"})
    reads = [runner.requeue_after_s(KEY, ApplyResult(()), (), is_continued=False) for _ in range(2)]
    assert (env.in_flight(), reads) == ((), [0, None])


async def test_forget_drops_the_overlay_of_a_key(env):
    await env.apply(create("a"))
    env.executor.forget(KEY)
    assert env.in_flight() == ()
