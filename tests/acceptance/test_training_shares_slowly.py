"""S25 with trainers that use their grace period to terminate, for example to write a checkpoint.

What one job gives is not free yet when the next plans are made, which is how FD:SH-B11 began. `--grace` is the grace period in
seconds: 10 by default, and `make acceptance GRACE=60` plays a minute, in about five minutes. Compressed: jobs arrive 2 s apart
instead of 10, have no cooldown, and changes settle in 0.3 s instead of 1; there are no pods of other workloads. kwok plays the
kubelets, and deletes the pods of this scenario when their grace period is over. What is judged are sizes as the API server's audit
log has them, and places as a watch saw them.
"""

import asyncio
from itertools import pairwise

import pytest

from acceptance.fleet import eventually
from acceptance.job_environment import JobEnv, sizes_by_job
from acceptance.test_training_shares import HIGH, JOBS, LOW, NODES, PENDING_S, SLOTS, WITHIN_S, is_even, swings
from support.deadlines import PATIENCE

pytestmark = [pytest.mark.rule("SC:S25", "FD:SH-B11"), pytest.mark.kube]

ARRIVAL_S = 2.0
TERMINATIONS = 4
"""In a row, besides the 60 s of S25: a job that has been scaled down for the minimums of some jobs is left alone until those trainers
are gone; it is scaled down for others then; and what arrived meanwhile is corrected afterwards, once or twice."""
MOST_RESIZES = 10
"""Of one job. Each arrival makes the shares of all others smaller, and twenty arrive. Scale-ups in a row count once, as in the timed
model: a job grows in pieces while pods terminate for it."""
PIECE_S = 10.0
"""A job grows at most once in this time while pods terminate for it: of the pieces there may be one more for each, if the scenario takes
longer than NOMINAL_S, as it does on a slow machine."""
NOMINAL_S = 60.0


def resizes_of(sizes: list[int]) -> int:
    """How often a job with these sizes, the first one included, was resized; scale-ups in a row count once."""
    is_up = [after > before for before, after in pairwise(sizes)]
    return sum(not (up and is_up_before) for is_up_before, up in pairwise([False, *is_up]))


@pytest.fixture
def grace_s(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--grace"))


@pytest.mark.timeout(1800)
async def test_twenty_jobs_meet_although_their_trainers_terminate_slowly(jobs: JobEnv, grace_s: int):
    slow = {
        "gracePeriodSeconds": grace_s,
        "template": {"metadata": {"annotations": {"raytide.test/takes-its-grace-period": "true"}}},
    }
    nodes = [await jobs.node(f"slots-{number}", cpu=str(SLOTS // NODES)) for number in range(NODES)]
    await jobs.nodes_ready(*nodes)
    sharing = await jobs.shared(RAYTIDE_SHARING_SETTLE="0.3")
    loop = asyncio.get_running_loop()
    for number in range(JOBS):
        await jobs.submit(f"job-{number:02}", LOW, HIGH, trainer=slow)
        await asyncio.sleep(ARRIVAL_S)
    arrived = loop.time()

    async def is_even_and_nothing_terminates() -> bool:
        is_calm = not any("deletionTimestamp" in pod["metadata"] for pod in jobs.pods.by_name.values())
        return is_calm and await is_even(jobs)

    within_s = WITHIN_S + TERMINATIONS * grace_s
    try:
        await eventually("every job has its share, none terminates", is_even_and_nothing_terminates, within_s=within_s)
    finally:
        even_s, waited_s = loop.time() - arrived, jobs.waits.longest_so_far_s()
        shares = sorted(jobs.running().values())
        history = sizes_by_job(await jobs.history())
        resizes = [resizes_of([size for _, size in sizes]) for sizes in history.values()]
        most = max(history.values(), key=len)
        jobs.record(
            f"S25 with {grace_s} s of grace: {even_s:.1f} s after the last of {JOBS} jobs they have {shares}; "
            f"{sum(map(len, history.values()))} sizes, {max(resizes)} resizes of one job at most; {len(most)} sizes of one job ({', '.join(f'{size} after {at - most[0][0]:.0f} s' for at, size in most)}); "
            f"pods waited {waited_s:.1f} s at most"
        )
    even_at = max(at for sizes in history.values() for at, _ in sizes)
    await sharing.has_reconciled()
    after = sizes_by_job(await jobs.history())
    assert await is_even(jobs), "and it stays so"
    assert swings(after, even_at) == {}
    assert max(resizes) <= MOST_RESIZES
    lasted_s = even_at - min(at for sizes in history.values() for at, _ in sizes)
    assert len(most) <= MOST_RESIZES + max(0.0, lasted_s - NOMINAL_S) / PIECE_S
    assert min(size for sizes in after.values() for _, size in sizes) >= LOW
    # An optimistic job has the pods of its minimum at once: they wait for what terminates.
    assert waited_s <= (grace_s + PENDING_S) * PATIENCE
    assert "this is a bug" not in sharing.operator.log
