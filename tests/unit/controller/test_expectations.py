"""One test per bullet of `Expectations`' contract, in virtual time, with a view of three fields."""

import asyncio
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from raytide.api.actions import Create, Delete
from raytide.api.meta import PODS, Key
from raytide.controller.expectations import Expectations, ViewDecoder, version_of
from raytide.runtime.clock import Clock

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D6")]
KEY, OWNER = Key("ns", "c"), "owner-1"


@dataclass(frozen=True)
class View:
    name: str
    uid: str = ""
    is_terminating: bool = False
    version: str = field(default="", compare=False)


def view_of(manifest: dict) -> View:
    metadata = manifest["metadata"]
    return View(metadata["name"], metadata.get("uid", ""), version=metadata.get("resourceVersion", ""))


class Env:
    """An overlay, and the state of its informer."""

    def __init__(self) -> None:
        self.version = 10
        self.relists = 0
        self.overlay = Expectations(
            clock=Clock(),
            reader=ViewDecoder(lambda body: view_of(msgspec.json.decode(body)), view_of),
            version_of=lambda view: view.version,
            name_of=lambda view: view.name,
            uid_of=lambda view: view.uid,
            as_terminating=lambda view: replace(view, is_terminating=True),
            informer_version=lambda namespace: self.version,
            ask_relist=self.relist,
        )

    def relist(self) -> None:
        self.relists += 1

    def shows(self, *seen: View, owner: str = OWNER) -> tuple[View, ...]:
        return self.overlay.overlay(KEY, owner, seen)

    def arriving(self, owner: str = OWNER) -> tuple[View, ...]:
        return self.overlay.arriving(KEY, owner)

    def due(self) -> tuple:
        return self.overlay.due(KEY, OWNER)

    def send(self, action: Create | Delete) -> None:
        self.overlay.sending(KEY, OWNER, action)

    def accept(self, action: Create | Delete, live=None) -> None:
        self.overlay.accepted(KEY, OWNER, action, live)

    def lose_response(self, action: Create | Delete) -> None:
        self.overlay.outcome_unknown(KEY, OWNER, action)


@pytest.fixture
def env() -> Env:
    return Env()


def create(name: str = "p") -> Create:
    return Create(PODS, {"metadata": {"namespace": "ns", "name": name}}, "Created")


def delete(uid: str, name: str = "p") -> Delete:
    return Delete(PODS, "ns", name, uid, "Deleted")


def live(uid: str, version: int, name: str = "p") -> View:
    return View(name, uid, version=str(version))


async def test_without_writes_in_flight_the_objects_of_the_informer_are_unchanged(env):
    assert env.shows(View("a", "u")) == (View("a", "u"),)
    assert env.overlay.requeue_after_s(KEY) is None


async def test_a_create_counts_from_the_moment_it_is_sent(env):
    env.send(create())
    assert env.shows(View("a", "u")) == (View("a", "u"), View("p"))
    env.accept(create(), live("u1", 12))
    assert env.shows() == (View("p", "u1"),)


async def test_a_delete_marks_and_never_hides(env):
    env.send(delete("u"))
    assert env.shows(View("p", "u"), View("q", "v")) == (View("p", "u", is_terminating=True), View("q", "v"))


async def test_a_delete_hides_only_the_object_with_its_uid(env):
    env.send(delete("u"))
    assert env.shows(View("p", "another")) == (View("p", "another"),)


async def test_a_failed_read_of_a_create_is_not_retried_at_once(env):
    env.send(create())
    env.lose_response(create())
    env.overlay.lookup_failed(KEY, OWNER, create())
    first_s = env.overlay.requeue_after_s(KEY)
    env.overlay.lookup_failed(KEY, OWNER, create())
    assert 0 < first_s < env.overlay.requeue_after_s(KEY)


async def test_an_older_object_of_the_same_name_does_not_fulfill_a_create(env):
    env.send(create())
    assert View("p", "") in env.shows(View("p", "old", is_terminating=True)), "its uid is not known yet"
    env.accept(create(), live("u1", 12))
    assert env.shows(View("p", "old")) == (View("p", "old"), View("p", "u1"))
    assert env.shows(View("p", "u1")) == (View("p", "u1"),)
    assert env.overlay.requeue_after_s(KEY) is None


async def test_a_create_whose_pod_is_being_deleted_causes_no_requeue(env):
    """Otherwise passes would follow each other without a delay while the informer is behind (RM:I13)."""
    env.send(create())
    env.accept(create(), live("u1", 12))
    await asyncio.sleep(25)
    env.send(delete("u1"))
    env.accept(delete("u1"), live("u1", 13))
    await asyncio.sleep(10)
    env.shows()
    assert env.due() == ()
    assert env.overlay.requeue_after_s(KEY) == pytest.approx(20)


async def test_a_create_ends_when_its_name_is_shown(env):
    env.send(create())
    env.accept(create(), live("u1", 12))
    assert env.shows(View("p", "u1")) == (View("p", "u1"),)
    assert env.shows() == ()


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param((), id="its uid is gone"),
        pytest.param((View("p", "u", is_terminating=True),), id="it is shown as terminating"),
    ],
)
async def test_a_delete_ends_when(env, shown):
    env.send(delete("u"))
    env.accept(delete("u"), View("p", "u"))
    env.shows(*shown)
    assert env.shows(View("p", "u")) == (View("p", "u"),)


async def test_a_create_ends_when_the_informer_has_reached_its_version(env):
    env.send(create())
    env.accept(create(), live("u1", 12))
    env.version = 11
    assert env.shows() == (View("p", "u1"),)
    env.version = 12
    assert env.shows() == ()


async def test_a_delete_ends_when_the_informer_has_reached_its_version(env):
    env.send(delete("u"))
    env.accept(delete("u"), live("u", 12))
    assert env.shows(View("p", "u"))[0].is_terminating
    env.version = 12
    assert not env.shows(View("p", "u"))[0].is_terminating


async def test_rejection_ends_an_entry(env):
    env.send(create())
    env.send(delete("u", "q"))
    env.overlay.rejected(KEY, OWNER, create())
    env.overlay.rejected(KEY, OWNER, delete("u", "q"))
    assert env.shows(View("q", "u")) == (View("q", "u"),)
    assert env.overlay.requeue_after_s(KEY) is None


async def test_an_unknown_outcome_is_repeated_by_the_very_same_request(env):
    first, second = create(), delete("u", "q")
    env.send(first)
    env.send(second)
    assert env.due() == ()
    env.lose_response(first)
    env.lose_response(second)
    again = env.due()
    assert again[0] is first
    assert again[1] is second
    assert env.shows(View("q", "u")) == (View("q", "u", is_terminating=True), View("p"))


async def test_one_relist_is_requested_per_entry(env):
    env.send(create())
    env.lose_response(create())
    env.due()
    env.due()
    assert env.relists == 1


async def test_repeats_are_delayed_exponentially(env):
    env.send(create())
    env.lose_response(create())
    assert env.overlay.requeue_after_s(KEY) == 0
    waits = []
    for _ in range(7):
        env.send(create())
        env.lose_response(create())
        waits.append(env.overlay.requeue_after_s(KEY))
    assert waits == pytest.approx([1, 2, 4, 8, 16, 30, 30])
    assert env.due() == ()


async def test_what_stays_unseen_for_thirty_seconds_is_repeated(env):
    env.send(create())
    env.accept(create(), live("u1", 12))
    assert env.overlay.requeue_after_s(KEY) == pytest.approx(30)
    await asyncio.sleep(29)
    assert env.due() == ()
    await asyncio.sleep(1)
    assert [action.name for action in env.due()] == ["p"]
    assert env.relists == 1


async def test_a_create_of_unknown_outcome_keeps_counting_whatever_happens(env):
    env.send(create())
    env.lose_response(create())
    await asyncio.sleep(500)
    env.version = 1000
    assert env.shows() == (View("p"),)


async def test_the_outcome_of_a_repeated_create_is_known_after_its_response(env):
    env.send(create())
    env.lose_response(create())
    assert env.overlay.is_outcome_unknown(KEY, OWNER, create())
    env.send(create())
    env.accept(create(), live("u1", 12))
    assert not env.overlay.is_outcome_unknown(KEY, OWNER, create())
    assert env.due() == ()


async def test_an_abandoned_create_may_arrive_for_a_minute_whatever_becomes_of_its_pod(env):
    env.send(create())
    assert env.arriving() == ()
    env.lose_response(create())
    env.send(create())
    env.accept(create(), live("u1", 12))
    env.send(delete("u1"))
    env.accept(delete("u1"), None)
    env.version = 20
    assert env.shows() == ()
    await asyncio.sleep(59)
    assert env.shows() == ()
    assert env.arriving() == (View("p"),)
    assert env.overlay.requeue_after_s(KEY) is None, "nothing is sent again"
    await asyncio.sleep(1)
    assert env.arriving() == ()


async def test_an_answered_create_and_its_answered_repeat_do_not_arrive_again(env):
    env.send(create())
    env.accept(create(), live("u1", 12))
    await asyncio.sleep(30)
    env.send(create())
    env.accept(create(), live("u1", 12))
    assert env.arriving() == ()


async def test_the_minute_begins_with_the_last_request_that_was_abandoned(env):
    env.send(create())
    env.lose_response(create())
    await asyncio.sleep(30)
    env.send(create())
    env.lose_response(create())
    await asyncio.sleep(59)
    assert env.arriving() == (View("p"),)
    await asyncio.sleep(1)
    assert env.arriving() == ()


async def test_what_may_arrive_is_forgotten_with_its_owner(env):
    env.send(create())
    env.lose_response(create())
    assert env.arriving("owner-2") == ()
    assert env.arriving() == ()


async def test_a_create_whose_pod_is_being_deleted_is_not_repeated(env):
    env.send(create())
    env.accept(create(), live("u1", 12))
    env.send(delete("u1"))
    assert env.shows() == (View("p", "u1", is_terminating=True),)
    await asyncio.sleep(31)
    assert env.due() == (delete("u1"),)


async def test_a_pod_deleted_before_it_was_ever_shown_stays_marked_until_the_informer_caught_up(env):
    env.send(create())
    env.accept(create(), live("u1", 12))
    env.send(delete("u1"))
    env.accept(delete("u1"), None)
    assert env.shows() == ()
    env.version = 11
    assert env.shows() == ()
    assert env.shows(View("p", "u1")) == (View("p", "u1", is_terminating=True),)
    env.version = 13
    assert env.shows() == ()
    assert env.overlay.requeue_after_s(KEY) is None


async def test_a_delete_of_what_is_gone_marks_it_for_thirty_seconds_and_is_not_repeated(env):
    env.send(delete("u"))
    env.accept(delete("u"), None)
    await asyncio.sleep(29)
    assert env.shows(View("p", "u"))[0].is_terminating
    await asyncio.sleep(2)
    assert env.due() == ()
    assert not env.shows(View("p", "u"))[0].is_terminating
    assert env.relists == 1


async def test_a_new_owner_of_the_same_name_starts_with_an_empty_book(env):
    env.send(create())
    assert env.shows(owner="owner-2") == ()
    assert env.shows() == ()


async def test_forget_drops_one_key_and_clear_all(env):
    other = Key("ns", "d")
    env.send(create())
    env.overlay.sending(other, OWNER, create())
    env.overlay.forget(KEY)
    assert env.shows() == ()
    assert env.overlay.overlay(other, OWNER, ()) == (View("p"),)
    env.overlay.clear()
    assert env.overlay.overlay(other, OWNER, ()) == ()


@pytest.mark.parametrize(
    ("manifest", "version"),
    [
        pytest.param({"metadata": {"resourceVersion": "17"}}, 17, id="a number"),
        pytest.param({"metadata": {"resourceVersion": "x17"}}, None, id="not a number"),
        pytest.param({"metadata": {}}, None, id="a Status"),
        pytest.param(None, None, id="nothing"),
    ],
)
async def test_the_version_of_an_answer(manifest, version):
    assert version_of(manifest) == version


@dataclass(frozen=True)
class Labelled(View):
    label: str = ""


async def test_what_a_patch_made_is_shown_until_the_informer_has_it(env):
    patched = Labelled("p", "u", version="12", label="new")
    env.overlay.patched(KEY, OWNER, patched)
    assert env.shows(Labelled("p", "u", version="9", label="old"), View("q", "v")) == (patched, View("q", "v"))
    env.version = 12
    assert env.shows(Labelled("p", "u", version="12", label="newer")) == (Labelled("p", "u", label="newer"),)
    assert env.overlay.requeue_after_s(KEY) is None


async def test_a_patch_restores_no_object_that_the_informer_does_not_have(env):
    env.overlay.patched(KEY, OWNER, live("u", 12))
    assert env.shows() == ()


async def test_a_patched_object_that_is_being_deleted_is_marked(env):
    env.overlay.patched(KEY, OWNER, live("u", 12))
    env.send(delete("u"))
    assert env.shows(live("u", 9)) == (View("p", "u", is_terminating=True),)


@pytest.mark.rule("FD:REL-C", "RM:F10")
async def test_a_create_with_a_lower_resource_version_is_awaited_by_uid_and_requests_a_relist():
    env = Env()
    env.version = 500
    action = create("w1")
    env.send(action)
    env.accept(action, View("w1", "u1", version="101"))
    assert env.relists == 1
    assert [view.name for view in env.shows()] == ["w1"], "500 of a lost history is no sign of it"
    env.version = 101
    assert [view.name for view in env.shows(View("w1", "u1", version="101"))] == ["w1"]
    assert env.due() == ()


@pytest.mark.rule("FD:RC-B14")
@pytest.mark.parametrize(
    ("group", "prefix"),
    [("headgroup", "NotSatisfiedHeadExpectations"), ("cpu", "NotSatisfiedGroupExpectations")],
)
async def test_a_write_not_observed_for_thirty_seconds_is_logged_once_with_kuberays_prefix(env, caplog, group, prefix):
    action = Create(PODS, {"metadata": {"namespace": "ns", "name": "p"}}, "Created", group=group)
    env.send(action)
    env.accept(action, View("p", "uid-p", version="11"))
    await asyncio.sleep(29)
    env.due()
    assert caplog.text == ""
    await asyncio.sleep(1)
    env.due()
    env.due()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{prefix}: create of p in group '{group}' of ")
    assert "not observed for 30 s" in record.getMessage()
