"""P12: CPU of the operator per pod created, on a real control plane: the runs of P3, and only this figure of them."""

import asyncio
import sys

from pod_creation_rate import main

if __name__ == "__main__":
    sys.exit(asyncio.run(main(is_about_cpu=True)))
