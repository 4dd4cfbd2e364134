"""GANGS: CPU of one decision for 100 placement groups of 8 STRICT_SPREAD bundles on 1,000 nodes, beside Ray's own."""

import sys

from packing import measure, node_types, running, spread_gangs
from raytide.autoscaler.model import SchedulingInput

NODES, BAR_MS = 1000, 500


def main() -> int:
    """Measure and print."""
    known = node_types(5)
    met = []
    for free, word in ((0.5, "half-free"), (0.0, "full"), (None, "different")):
        question = SchedulingInput(known, running(NODES, known, free), gangs=spread_gangs(100, 8))
        limit_s = 10 if free else 30
        met.append(measure("GANGS", f"100 x 8 STRICT_SPREAD, {NODES} {word} nodes", question, BAR_MS, limit_s))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
