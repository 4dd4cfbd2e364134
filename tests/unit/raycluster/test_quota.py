"""Amounts in the message of a quota rejection, and when a whole replica fits."""

import pytest

from raytide.api import constants
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import RESOURCE_QUOTAS, Key
from raytide.api.quantity import Quantity
from raytide.raycluster.observed import PendingRetry
from raytide.raycluster.quota import Shortage, has_capacity, shortage_of
from raytide.raycluster.quota_lookup import LOOKUP_INTERVAL_S, QuotaLookup
from support.builders import group, parsed

EXCEEDED = (
    'pods "demo-cpu-worker-*" is forbidden: exceeded quota: team, requested: pods=1,requests.cpu=500m, '
    "used: pods=10,requests.cpu=5, limited: pods=10,requests.cpu=5"
)
SHORTAGE = Shortage("team", {"pods": Quantity.parse("1"), "requests.cpu": Quantity.parse("500m")})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(EXCEEDED, SHORTAGE, id="the API server's message names quota and amounts"),
        pytest.param('pods "x" is forbidden: violates PodSecurity', None, id="another rejection is none of a quota"),
        pytest.param("exceeded quota: team, requested: pods=many, used: pods=1", None, id="unreadable amounts"),
        pytest.param("", None, id="no message"),
    ],
)
def test_a_rejection(message, expected):
    assert shortage_of(message) == expected


def quota(hard, used):
    return {"status": {"hard": hard, "used": used}}


@pytest.mark.rule("SC:S4")
@pytest.mark.parametrize(
    ("found", "is_enough"),
    [
        pytest.param(quota({"pods": "12"}, {"pods": "8"}), True, id="exactly enough for all hosts"),
        pytest.param(quota({"pods": "11"}, {"pods": "8"}), False, id="one host too few"),
        pytest.param(quota({"pods": "99", "requests.cpu": "1"}, {"pods": "0"}), False, id="every amount counts"),
        pytest.param(quota({"pods": "4", "limits.memory": "0"}, {}), True, id="amounts that are not requested do not"),
        pytest.param(quota({"pods": "?"}, {}), False, id="an unreadable amount is no capacity"),
        pytest.param(None, True, id="a quota that is gone admits everything"),
    ],
)
def test_quota_for_four_hosts(found, is_enough):
    assert has_capacity(SHORTAGE, found, 4) is is_enough


class Quotas:
    """A client that knows quotas by name; an error in place of one is raised."""

    def __init__(self, **quotas):
        self.quotas = quotas
        self.asked = []

    async def get(self, resource, key):
        assert resource is RESOURCE_QUOTAS
        self.asked.append(key)
        found = self.quotas.get(key.name)
        if isinstance(found, Exception):
            raise found
        return found


class FakeClock:
    """A clock that the test sets."""

    now = 100.0

    def monotonic(self):
        return self.now


def waiting(message=EXCEEDED, group="cpu", replicas_in_s=60.0):
    return PendingRetry(group, constants.FAILED_TO_CREATE_WORKER_POD, message, 0.0, 0, replicas_in_s)


CLUSTER = parsed(group(numOfHosts=4))


@pytest.mark.rule("SC:S4")
@pytest.mark.parametrize(
    ("found", "message"),
    [
        pytest.param(quota({"pods": "12"}, {"pods": "8"}), {"cpu": True}, id="has capacity"),
        pytest.param(quota({"pods": "10"}, {"pods": "8"}), {"cpu": False}, id="has no capacity"),
        pytest.param(ApiStatusError(403, "Forbidden", "no"), {}, id="forbidden: no capacity is reported"),
        pytest.param(ApiUnavailableError("away"), {}, id="no response: no capacity is reported"),
    ],
)
async def test_a_quota_that_is_waited_for(found, message):
    client = Quotas(team=found)
    assert await QuotaLookup(client, clock=FakeClock()).has_capacity_by_group(CLUSTER, [waiting()]) == message
    assert client.asked == [Key("default", "team")]


async def test_it_is_read_at_most_every_ten_seconds():
    client, clock = Quotas(team=quota({"pods": "10"}, {"pods": "8"})), FakeClock()
    lookup = QuotaLookup(client, clock=clock)
    for passed_s in (0.0, 1.0, LOOKUP_INTERVAL_S - 1.5, 1.0):
        clock.now += passed_s
        await lookup.has_capacity_by_group(CLUSTER, [waiting()])
    assert len(client.asked) == 2
    lookup.forget(CLUSTER.key)
    assert await lookup.has_capacity_by_group(CLUSTER, [waiting()]) == {"cpu": False}


@pytest.mark.parametrize(
    "retry",
    [
        pytest.param(waiting(replicas_in_s=0.0), id="a rejection that holds back no replica"),
        pytest.param(waiting("violates PodSecurity"), id="a rejection that is no quota's"),
        pytest.param(waiting(group="gone"), id="a group that is no longer there"),
    ],
)
async def test_makes_no_request(retry):
    client = Quotas()
    assert await QuotaLookup(client, clock=FakeClock()).has_capacity_by_group(CLUSTER, [retry]) == {}
    assert client.asked == []
