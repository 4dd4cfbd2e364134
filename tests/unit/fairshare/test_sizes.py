"""A job runs in its allowed sizes, also if a client wrote another number."""

import pytest

from raytide.api.sharing_record import SIZE_NOT_ALLOWED
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.unknown_capacity import clamp_to_bounds
from unit.fairshare.test_participants import NOW, UID, SharingRecord, job, made, node, pod_of


def sized(low, high, replicas, pods, *, cpus="20", lost="", **scaling):
    """A job with so many pods on one node, and the current spec; pods of lost trainers are gone."""
    record = SharingRecord(UID, replicas, is_admitted=True, admitted_at=NOW)
    status = {"trainer": {"failedIndexes": lost}} if lost else {}
    one = job("j", low, high, replicas=replicas, record=record, status=status, scaling=scaling)
    return made(one, [pod_of(i, "n") for i in range(pods)], [node("n", cpus)])


def sizes_after(pool):
    sizes = {one.id.name: one.current for one in pool.participants}
    for resize in allocate(pool).resizes:
        sizes[resize.id.name] = resize.after
    return sizes["j"]


@pytest.mark.rule("FD:SH-B12")
@pytest.mark.parametrize(
    ("pool", "size"),
    [
        pytest.param(sized(2, 8, 5, 5, cpus="7", allowedSizes=[2, 4, 8]), 4, id="kubectl scale to no listed size"),
        pytest.param(sized(2, 8, 5, 5, allowedSizes=[2, 4, 8]), 8, id="up, if there is capacity"),
        pytest.param(sized(4, 8, 8, 7, lost="3", allowedSizes=[4, 8]), 4, id="listed sizes with a failed trainer"),
        pytest.param(sized(2, 9, 2, 2, step=4), 6, id="steps end at the last whole one"),
        pytest.param(sized(2, 9, 9, 9, step=4), 6, id="the maximum is no size by itself"),
        pytest.param(sized(2, 9, 5, 5, cpus="5", step=4), 2, id="kubectl scale to between two steps"),
        pytest.param(sized(2, 10, 10, 9, lost="3", step=4), 6, id="steps with a failed trainer"),
    ],
)
def test_sizes_keep_their_rule(pool, size):
    assert sizes_after(pool) == size


@pytest.mark.rule("FD:SH-B12")
def test_the_message_of_a_resize_to_an_allowed_size_has_the_reason():
    (only,) = allocate(sized(2, 8, 5, 5, cpus="7", allowedSizes=[2, 4, 8])).resizes
    assert (only.reason, only.message) == (
        SIZE_NOT_ALLOWED,
        "ScaledDown 5→4: 5 is not an allowed size",
    )


@pytest.mark.rule("FD:SH-B12")
def test_sizes_keep_their_rule_while_capacity_is_not_known():
    (only,) = clamp_to_bounds(sized(2, 8, 5, 5, allowedSizes=[2, 4, 8]), "nodes may not be read").resizes
    assert only.after == 4
