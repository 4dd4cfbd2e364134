"""A child lister merges its informers, and applies writes in flight to the children of one uid only."""

import pytest

from raytide.api.actions import Create, Delete
from raytide.api.meta import SERVICES, Key
from raytide.api.service import decode_service, service_from_manifest
from raytide.controller.child_lister import ChildLister
from raytide.controller.expectations import ViewDecoder
from raytide.runtime.clock import Clock

pytestmark = [pytest.mark.looptime, pytest.mark.rule("D6")]
KEY = Key("ns", "demo")


def manifest(name, owner, uid=""):
    owners = [{"uid": owner, "controller": True, "apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "demo"}]
    metadata = {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": "5", "ownerReferences": owners}
    return {"metadata": metadata, "spec": {}}


class FakeInformer:
    """Holds views of one owner key, and counts the requested lists."""

    resource = SERVICES

    def __init__(self, version, *views):
        self.version, self.views, self.relists = version, views, 0

    def by_index(self, key):
        return self.views if key == KEY else ()

    def get(self, _namespace, name):
        return next((view for view in self.views if view.name == name), None)

    def version_in(self, _namespace):
        return self.version

    def relist(self):
        self.relists += 1


def lister(*informers):
    return ChildLister(Clock(), ViewDecoder(decode_service, service_from_manifest), *informers)


MINE = service_from_manifest(manifest("mine", "now", uid="1"))
EARLIER = service_from_manifest(manifest("new", "before", uid="2"))


async def test_children_of_all_informers_are_seen():
    services = lister(FakeInformer(5, MINE), FakeInformer(5, EARLIER))
    assert [view.name for view in services.seen(KEY)] == ["mine", "new"]
    assert services.seen(Key("ns", "other")) == []
    assert (services.get("ns", "new"), services.get("ns", "gone")) == (EARLIER, None)
    assert services.resource == SERVICES


async def test_a_child_of_an_earlier_owner_does_not_settle_a_create_of_the_same_name():
    services = lister(FakeInformer(9, MINE, EARLIER))
    services.in_flight.sending(KEY, "now", Create(SERVICES, manifest("new", "now"), "Created"))
    found = [(view.name, view.owner_uid) for view in services.expected(KEY, "now")]
    assert found == [("mine", "now"), ("new", "now"), ("new", "before")]


async def test_a_delete_in_flight_is_shown_as_terminating():
    services = lister(FakeInformer(9, MINE))
    services.in_flight.sending(KEY, "now", Delete(SERVICES, "ns", "mine", "1", "Deleted"))
    assert [view.is_terminating for view in services.expected(KEY, "now")] == [True]
    assert [view.is_terminating for view in services.seen(KEY)] == [False]
