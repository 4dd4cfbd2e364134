"""GANGS: CPU of one decision for 100 placement groups of 8 STRICT_SPREAD bundles on 1,000 nodes, compared with Ray's."""

import sys

from packing import cpu_seconds, measure, node_types, running, spread_gangs
from raytide.autoscaler.model import SchedulingRequest

NODES, BAR_MS = 1000, 500


def main() -> int:
    """Measure and print."""
    known = node_types(5)
    met = []
    for free, word, ray_limit_s in ((0.5, "half-free", 10), (0.0, "full", 30)):
        question = SchedulingRequest(known, running(NODES, known, free), gangs=spread_gangs(100, 8))
        what = f"100 x 8 STRICT_SPREAD, {NODES} {word} nodes"
        met.append(measure("GANGS", what, question, BAR_MS, ray_limit_s))
    different = SchedulingRequest(known, running(NODES, known, None), gangs=spread_gangs(100, 8))
    print(f"worst case, all nodes different, no bar: best {1000 * min(cpu_seconds(different)):.0f} ms CPU")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
