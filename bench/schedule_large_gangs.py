"""P1C: CPU of one decision for 1,000 placement groups of 8 STRICT_SPREAD bundles on 5,000 nodes with uneven object stores."""

import sys

from packing import measure, node_types, running, spread_gangs
from raytide.autoscaler.model import SchedulingRequest

NODES, GANGS, BAR_MS = 5000, 1000, 2000


def main() -> int:
    """Measure and print."""
    known = node_types(5)
    question = SchedulingRequest(known, running(NODES, known, 0.5), gangs=spread_gangs(GANGS, 8))
    what = f"{GANGS} x 8 STRICT_SPREAD, {NODES} half-free nodes with uneven object stores"
    return 0 if measure("P1C", what, question, BAR_MS, ray_limit_s=10) else 1


if __name__ == "__main__":
    sys.exit(main())
