"""`raytide operator` with a memory limit, which reports for how long its event loops were blocked.

`python measured_operator.py LIMIT_MIB FILE [flags]`: at SIGUSR1 it writes to FILE, as JSON, the longest step of any event
loop since the last time, in seconds of CPU of that thread, and whose step it was. CPU time, because other processes on a
busy machine are not its fault.
"""

import asyncio
import gc
import json
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

LONGEST: dict[str, Any] = {"cpu_s": 0.0, "step": "", "collector_s": 0.0}


def measure() -> None:
    """Take the time of every step of every loop."""
    run = asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        began = time.thread_time()
        run(self)
        spent = time.thread_time() - began
        if spent > LONGEST["cpu_s"]:
            LONGEST.update(cpu_s=spent, step=repr(self)[:600])

    asyncio.Handle._run = timed  # type: ignore[method-assign]
    since = [0.0]

    def collected(phase: str, _about: dict[str, int]) -> None:
        if phase == "start":
            since[0] = time.thread_time()
        else:
            LONGEST["collector_s"] = max(LONGEST["collector_s"], time.thread_time() - since[0])

    gc.callbacks.append(collected)


def main() -> None:
    limit_mib, file, *flags = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit_mib) << 20, int(limit_mib) << 20))

    def report(*_: object) -> None:
        part = Path(f"{file}.part")
        part.write_text(json.dumps(LONGEST))
        part.rename(file)
        LONGEST.update(cpu_s=0.0, step="", collector_s=0.0)

    signal.signal(signal.SIGUSR1, report)
    measure()
    from raytide.cli import main as raytide

    raytide(["operator", *flags], standalone_mode=True)


if __name__ == "__main__":
    main()
