"""Applies the mutation of the command line option `--mutation`."""

from collections.abc import Iterator

import pytest

from simulation.mutations import MUTATIONS


@pytest.fixture(autouse=True)
def _mutation(request: pytest.FixtureRequest) -> Iterator[None]:
    name = request.config.getoption("--mutation")
    with pytest.MonkeyPatch.context() as patch:
        if name:
            MUTATIONS[name](patch)
        yield
