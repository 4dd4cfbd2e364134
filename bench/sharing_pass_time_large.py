"""P10L: the same as P10 with 10,000 TrainingJobs on 5,000 nodes, which is the largest size that Kubernetes supports.

Two runs each instead of five: what differs between runs is small beside a second.
"""

import sys

from sharing_pass_time import Figure, main

P10L = Figure("P10L", 10_000, 5_000, 5000, 1000, runs=2)

if __name__ == "__main__":
    sys.exit(main(P10L))
