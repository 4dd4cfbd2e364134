"""Whether fair sharing scales a job down for another one, and why not."""

import pytest

from raytide.simulator.donor_notes import donor_notes
from support.elastic_builders import World, id_of, job, node

pytestmark = pytest.mark.rule("TJ:7.15")


@pytest.mark.parametrize(
    ("other", "one", "note"),
    [
        pytest.param(
            job("other", 2, 8, 6),
            job("one", 2, 4, 2),
            "it is scaled down to 2, but only for jobs below their minimum",
            id="it does not rebalance",
        ),
        pytest.param(
            job("other", 2, 8, 7, priority=9),
            job("one", 1, 3, 1),
            "it has a higher priority (9 against 0)",
            id="a higher priority",
        ),
        pytest.param(
            job("other", 2, 8, 7, may_shrink=False), job("one", 1, 3, 1), "it is in a cooldown", id="a cooldown"
        ),
        pytest.param(
            job("other", 2, 8, 7, may_shrink=False, rebalances=True),
            job("one", 1, 3, 1, priority=5, rebalances=True),
            "it is in a cooldown",
            id="growth of a higher priority waits for a cooldown too",
        ),
        pytest.param(
            job("other", 2, 20, 12, rebalances=True),
            job("one", 0, 1, 0, cpu=10, priority=5, rebalances=True),
            "it is scaled down to 2 for jobs of a higher priority",
            id="a lower priority",
        ),
        pytest.param(
            job("other", 2, 8, 7, rebalances=True),
            job("one", 1, 3, 1, rebalances=True),
            "it is scaled down to 2 for jobs below their minimum, and for others once they are much less fulfilled",
            id="both rebalance",
        ),
        pytest.param(job("other", 2, 2, 2), job("one", 1, 3, 1), "it is at its minimum", id="its minimum"),
        pytest.param(
            job("other", 2, 8, 7, is_scaling_enabled=False),
            job("one", 1, 3, 1),
            "scaling is disabled for it",
            id="scaling is disabled",
        ),
        pytest.param(
            job("other", 2, 8, 7),
            job("one", 1, 3, 1, may_preempt=False),
            "it is not scaled down for pods with preemptionPolicy: Never",
            id="no preemption",
        ),
        pytest.param(
            job("other", 2, 8, 7),
            job("one", 1, 3, 1, may_preempt=False, is_unproven=True),
            "it is not scaled down for pods that have scheduling gates, or got no node before",
            id="pods that got no node before",
        ),
        pytest.param(
            job("other", 2, 8, 7, tenant="a"),
            job("one", 1, 3, 1, tenant="b"),
            "it belongs to another tenant, and is scaled down if that tenant has a higher share or borrows",
            id="another tenant",
        ),
    ],
)
def test_what_is_taken_of_another_job(other, one, note):
    pool = World([node(cpu=99)], [other, one]).pool()
    assert donor_notes(pool, id_of("one")) == {id_of("other"): note}


def test_a_job_that_takes_no_part_is_not_compared():
    assert donor_notes(World([node(cpu=9)], [job("other", 2, 8, 6)]).pool(), id_of("nobody")) == {}
