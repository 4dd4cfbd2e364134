"""P1: CPU of one decision for 1,000 half-free nodes and 1,000 demands, of one shape and of 64, compared with Ray's."""

import sys

from packing import demands, measure, node_types, running
from raytide.autoscaler.model import SchedulingRequest

NODES, BAR_MS = 1000, 100


def main() -> int:
    """Measure and print."""
    met = []
    for types, shapes, each in ((1, 1, 1000), (10, 64, 16)):
        known = node_types(types)
        question = SchedulingRequest(known, running(NODES, known, 0.5), demands(shapes, each))
        what = f"{NODES} half-free nodes, {shapes} x {each} demands, {types} types"
        met.append(measure("P1", what, question, BAR_MS))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
