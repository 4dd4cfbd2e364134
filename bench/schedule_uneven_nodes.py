"""P1B: CPU of one decision for half-free nodes of which each has another amount of object store in use, 64 shapes x 16."""

import sys

from packing import demands, measure, node_types, running
from raytide.autoscaler.model import SchedulingRequest

BARS_MS = {1000: 100, 10_000: 1000}


def main() -> int:
    """Measure and print."""
    known = node_types(10)
    met = []
    for nodes, bar_ms in BARS_MS.items():
        question = SchedulingRequest(known, running(nodes, known, 0.5), demands(64, 16))
        what = f"{nodes} half-free nodes with uneven object stores, 64 x 16 demands, 10 types"
        met.append(measure("P1B", what, question, bar_ms, ray_limit_s=20))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
