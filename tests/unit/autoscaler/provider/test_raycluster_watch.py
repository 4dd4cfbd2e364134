"""The sidecar watches its own RayCluster if its Role allows that, otherwise it reads it once per pass (FD:AS-A16)."""

import asyncio
import json

import pytest

from raytide.api import constants
from raytide.api.errors import ApiUnavailableError
from raytide.autoscaler.provider.provider import FORBIDDEN_S, PatchResult
from support.builders import group
from unit.autoscaler.harness import CLUSTERS, KEY, Harness
from unit.kube.scripted import answer, status_error

pytestmark = [pytest.mark.looptime, pytest.mark.rule("FD:AS-A16")]

TEN_MINUTES_S = 600
MOST_REQUESTS = 30
"""In ten minutes of steady state: a thousand sidecars send 50 requests per second."""


@pytest.fixture
async def harness():
    return Harness()


def kuberays_role(method, path, _body):
    """It may get and patch its RayCluster, neither list nor watch it."""
    return status_error(403, "Forbidden") if path.endswith("/rayclusters") and method in ("GET", "WATCH") else None


def without_watch(method, path, _body):
    return status_error(403, "Forbidden") if path.endswith("/rayclusters") and method == "WATCH" else None


def cut_off(method, path, _body):
    """Neither a list nor a watch of the RayCluster is answered; single objects are."""
    return (
        ApiUnavailableError("connection reset")
        if path.endswith("/rayclusters") and method in ("GET", "WATCH")
        else None
    )


@pytest.mark.rule("AS:B-19")
async def test_an_idle_sidecar_sends_almost_no_requests_to_the_api_server(harness):
    async with harness.running():
        await harness.until("a first turn", lambda: harness.ticks)
        before, turns = len(harness.journal), len(harness.ticks)
        await asyncio.sleep(TEN_MINUTES_S)
        asked = harness.journal[before:]
    assert len(harness.ticks) - turns == pytest.approx(TEN_MINUTES_S / 5, abs=2)
    assert len(asked) <= MOST_REQUESTS, asked
    assert harness.count("GET demo") == 0


@pytest.mark.rule("AS:K-2")
async def test_it_watches_only_its_own_raycluster_and_pods(harness):
    async with harness.running():
        await asyncio.sleep(TEN_MINUTES_S)
        harness.front.cut()
        await asyncio.sleep(TEN_MINUTES_S)
    assert harness.front.selected == {("rayclusters", "metadata.name=demo"), ("pods", "ray.io/cluster=demo")}


@pytest.mark.parametrize("role", [kuberays_role, without_watch], ids=["as KubeRay's", "may list"])
async def test_without_the_watch_permission_it_reads_once_per_pass_and_rarely_retries_the_watch(harness, role):
    harness.front.intercept = role
    harness.ask_for(3)
    async with harness.running():
        await harness.until("three replicas", lambda: harness.group["replicas"] == 3)
        before, turns, gets = len(harness.journal), len(harness.ticks), harness.count("GET demo")
        await asyncio.sleep(TEN_MINUTES_S)
        turned = len(harness.ticks) - turns
        tries = [entry for entry in harness.journal[before:] if entry in ("GET rayclusters", "WATCH rayclusters")]
        assert harness.count("GET demo") - gets == pytest.approx(turned, abs=1)
        assert 1 <= len(tries) <= 2 * TEN_MINUTES_S / FORBIDDEN_S
        harness.front.intercept = lambda *_: None
        await asyncio.sleep(FORBIDDEN_S + 1)
        gets = harness.count("GET demo")
        await asyncio.sleep(TEN_MINUTES_S)
    assert harness.count("GET demo") - gets <= 1


async def test_while_the_watch_is_broken_it_reads_once_per_pass(harness):
    async with harness.running():
        await harness.until("a first turn", lambda: harness.ticks)
        harness.front.intercept = cut_off
        harness.front.cut()
        await asyncio.sleep(30)
        harness.ask_for(3)
        harness.edit(lambda obj: obj["spec"]["workerGroupSpecs"][0].update(maxReplicas=2))
        await harness.until("as many as the new maximum lets", lambda: harness.group["replicas"] == 2)
        await asyncio.sleep(300)
        assert {tick.skipped for tick in harness.ticks} == {""}
        assert {tick.patch_result for tick in harness.ticks} == {None, PatchResult.APPLIED}
        harness.front.intercept = lambda *_: None
        await asyncio.sleep(60)
        gets = harness.count("GET demo")
        await asyncio.sleep(60)
    assert harness.count("GET demo") == gets


async def test_after_a_write_of_its_own_nothing_is_decided_on_an_older_version(harness):
    harness.lag_s = 40.0
    async with harness.running():
        await harness.until("a first turn", lambda: harness.ticks)
        await asyncio.sleep(60)
        harness.ask_for(3)
        await harness.until("three replicas", lambda: harness.group["replicas"] == 3)
        await asyncio.sleep(100)
        gets = harness.count("GET demo")
        await asyncio.sleep(30)
    assert harness.count("PATCH") == 1
    assert harness.count("GET demo") == gets > 0


async def test_after_a_patch_rejected_by_its_test_operations_it_reads_the_current_raycluster(harness):
    harness.lag_s = 40.0
    async with harness.running():
        await harness.until("a first turn", lambda: harness.ticks)
        await asyncio.sleep(60)
        harness.edit(lambda obj: obj["spec"]["workerGroupSpecs"][0].update(maxReplicas=2))
        harness.ask_for(3)
        took_s = await harness.until("two replicas", lambda: harness.group["replicas"] == 2)
    assert took_s < 15
    assert [tick.patch_result for tick in harness.ticks if tick.patch_result] == [
        PatchResult.CONFLICT,
        PatchResult.APPLIED,
    ]


async def test_a_deleted_raycluster_is_confirmed_with_a_get(harness):
    async with harness.running():
        await harness.until("a first turn", lambda: harness.ticks)
        harness.store.delete(CLUSTERS, *KEY)
        await harness.until("gone", lambda: harness.ticks[-1].skipped == "gone")


@pytest.mark.rule("RM:F10")
async def test_a_resource_version_that_went_back_does_not_cause_reads_for_ever(harness):
    def from_a_future_that_was_undone(method, path, _body):
        if method != "PATCH":
            return None
        cluster = harness.cluster
        return answer({**cluster, "metadata": {**cluster["metadata"], "resourceVersion": "1000000"}})

    harness.front.after = from_a_future_that_was_undone
    harness.ask_for(3)
    async with harness.running():
        await harness.until("three replicas", lambda: harness.group["replicas"] == 3)
        await asyncio.sleep(20)
        gets = harness.count("GET demo")
        await asyncio.sleep(60)
    assert harness.count("GET demo") == gets == 1


@pytest.fixture
async def late():
    """An idle sidecar of a cluster with two workers, whose watch of the RayCluster is delayed from now on."""
    harness = Harness(group("cpu", replicas=2, low=2, high=2))
    harness.edit(lambda obj: obj["metadata"].setdefault("annotations", {}).update(note="by a user"))
    async with harness.running():
        await harness.until("a first turn", lambda: harness.ticks)
        await asyncio.sleep(30)
        harness.front.late["rayclusters"] = asyncio.Event()
        yield harness


async def test_no_node_is_drained_for_a_maximum_that_was_raised_before_the_watch_shows_it(late):
    late.edit(lambda obj: obj["spec"]["workerGroupSpecs"][0].update(minReplicas=4, maxReplicas=4))
    for number in (2, 3):
        late.add_pod(f"demo-cpu-worker-{number}")
    await asyncio.sleep(40)
    assert late.gcs.drains == []


@pytest.mark.parametrize("is_registered", [True, False], ids=["running", "starting"])
async def test_pods_of_a_group_that_the_watch_has_not_shown_are_not_ended(late, is_registered):
    late._obey = lambda _: None
    late.edit(lambda obj: obj["spec"]["workerGroupSpecs"].append(group("new", replicas=2, low=2, high=4)))
    for number in range(2):
        late.add_pod(f"demo-new-worker-{number}", "new")
        if not is_registered:
            late.gcs.nodes.pop(late.gcs.node(f"demo-new-worker-{number}").node_id)
    decisions = []
    for _ in range(80):
        await asyncio.sleep(0.5)
        record = late.cluster["metadata"]["annotations"].get(constants.AUTOSCALER_DECISION_ANNOTATION, '{"groups": {}}')
        decisions.append(json.loads(record)["groups"].get("new", {}))
    assert late.gcs.drains == []
    assert not [each for each in decisions if each.get("delete") or each.get("replicas") == 0]
