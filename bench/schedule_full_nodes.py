"""P2: CPU of one decision for large demand: 1,337 full nodes and 2,000 nodes that are all different, compared with Ray's."""

import sys

from packing import demands, measure, node_types, running
from raytide.autoscaler.model import SchedulingRequest


def main() -> int:
    """Measure and print."""
    known = node_types(1)
    full = SchedulingRequest(known, running(1337, known, 0.0), demands(1, 13_315))
    met = [measure("P2", "1337 full nodes, 13315 demands", full, 20)]
    known = node_types(10)
    different = SchedulingRequest(known, running(2000, known, None), demands(64, 157))
    met.append(measure("P2", "2000 different nodes, 64 x 157 demands, 10 types", different, 1000, ray_limit_s=30))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
