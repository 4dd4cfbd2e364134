"""Delays double up to the longest, and can be reset."""

import pytest

from raytide.runtime.backoff import Backoff, backoff_s


@pytest.mark.parametrize(
    ("failures", "delay_s"),
    [(0, 0.0), (1, 0.5), (2, 1.0), (3, 2.0), (6, 10.0), (100_000, 10.0)],
)
def test_the_delay_after_so_many_failures(failures, delay_s):
    assert backoff_s(failures, first_s=0.5, longest_s=10.0) == delay_s


def test_a_back_off_counts_for_itself():
    backoff = Backoff(first_s=1.0, longest_s=3.0)
    assert [backoff.next_s() for _ in range(3)] == [1.0, 2.0, 3.0]
    backoff.reset()
    assert backoff.next_s() == 1.0
