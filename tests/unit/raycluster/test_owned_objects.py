"""The table of objects besides pods: what each row creates, and the assumptions of the step that reads it."""

from itertools import groupby

import pytest

from raytide.api.config import ClusterConfig
from raytide.api.meta import ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS, SERVICES
from raytide.raycluster.observed import Observed
from raytide.raycluster.owned_objects import NAMELESS_SLOTS, OWNED_OBJECTS, SERVICE_SLOT
from support.builders import group, head_service, parsed

MULTI_HOST = parsed(group(numOfHosts=2), enableInTreeAutoscaling=True)
ALL_RIGHTS = frozenset((resource, "demo") for resource in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS))


def missing(cluster, observed):
    return [(row.resource.kind, row.slot) for row in OWNED_OBJECTS if row.is_missing(cluster, observed)]


@pytest.mark.rule("RC:HS-1", "RC:HL-1", "RC:RB-1")
def test_everything_is_missing_of_a_new_cluster_with_hosts_and_an_autoscaler():
    assert missing(MULTI_HOST, Observed(missing=ALL_RIGHTS)) == [
        ("Service", SERVICE_SLOT),
        ("Service", "(headless service)"),
        ("ServiceAccount", "(autoscaler)"),
        ("Role", "(autoscaler)"),
        ("RoleBinding", "(autoscaler)"),
    ]


@pytest.mark.rule("RC:HL-1")
def test_a_cluster_without_multi_host_groups_needs_no_headless_service():
    assert missing(parsed(), Observed()) == [("Service", SERVICE_SLOT)]


def test_an_existing_head_service_is_not_missing():
    assert missing(parsed(), Observed(services=(head_service(),))) == []


def test_rows_of_a_slot_are_consecutive_so_that_each_slot_is_planned_once():
    slots = [slot for slot, _ in groupby(row.slot for row in OWNED_OBJECTS)]
    assert sorted(slots) == sorted(NAMELESS_SLOTS)


@pytest.mark.parametrize("row", OWNED_OBJECTS, ids=lambda row: f"{row.resource.kind} {row.slot}")
def test_each_row_builds_an_object_of_its_kind_that_the_cluster_owns(row):
    create = row.create(MULTI_HOST, ClusterConfig(), lambda: "drawn")
    assert (create.resource, create.group) == (row.resource, row.slot)
    assert create.manifest["kind"] == row.resource.kind
    assert create.manifest["metadata"]["ownerReferences"][0]["uid"] == MULTI_HOST.metadata.uid
    assert create.success_reason or row.resource == SECRETS, "as in KubeRay"
    assert create.failure_reason
    assert row.is_before_head == (row.resource != SERVICES)
