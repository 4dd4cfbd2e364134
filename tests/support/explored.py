"""Settings of the properties: how many examples hypothesis draws.

They come from `RAYTIDE_SEED` (conftest.py), and without it are new ones in each run. A failure prints the decorator that repeats it.
"""

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("RAYTIDE_EXAMPLES", "60"))
"""Random snapshots for one property of one plan; `make properties` draws 10,000."""


def explored(examples: int = EXAMPLES) -> settings:
    """A decorator for a property that draws so many examples, without a deadline, and prints how to reproduce a failure."""
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        database=None,
    )
