"""P7F: peak resident memory of the operator under each hostile object, with a hundred healthy clusters, in 512 MiB.

Prints besides, for people, the longest step of one of its loops in milliseconds of CPU.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from support.hostile_environment import HostileEnv
from support.hostile_objects import HOSTILE

from harness import result

BAR_MIB = 256


async def main() -> int:
    """Measure and print."""
    met = []
    with tempfile.TemporaryDirectory(prefix="rt") as folder:
        env = HostileEnv(Path(folder))
        try:
            await env.start()
            for name, hostile in HOSTILE.items():
                cost = await env.meet(hostile)
                await env.clear()
                met.append(result("P7F", cost["peak_mib"], f"MiB peak: {name}", BAR_MIB))
                print(f"  longest step {cost['cpu_s'] * 1000:.0f} ms of CPU", flush=True)
        finally:
            await env.stop()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
