"""Real Ray for tests: a bare GCS, and a head with a worker, of any installed version, apart from every other Ray.

A bare `gcs_server` answers in 0.3 seconds and knows no nodes; `RayNodes` runs `ray start` with ports and folders of its
own. `RAYTIDE_TEST_RAY` names the Python of another version (tools/checks/ray_versions.py sets it). Whatever is started carries a
mark in its environment and is ended by it: never `ray stop`, which would end the Rays of other people too.
"""

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from raytide.api.errors import ApiUnavailableError
from raytide.autoscaler.gcs.channel import connect_gcs
from raytide.autoscaler.gcs.client import Gcs
from raytide.autoscaler.gcs.credentials import gcs_access
from support.deadlines import PATIENCE
from support.ports import free_port

PYTHON_VARIABLE = "RAYTIDE_TEST_RAY"
MARK = "RAYTIDE_TEST_MARK"
PATIENCE_S = 30.0
DRIVER_PATIENCE_S = 120.0 * PATIENCE


@dataclass(frozen=True)
class Ray:
    """One installed version."""

    python: Path
    package: Path

    @classmethod
    def under_test(cls) -> Self:
        """The one that the environment names, or the installed one."""
        if named := os.environ.get(PYTHON_VARIABLE):
            (package,) = Path(named).parent.parent.glob("lib/python3*/site-packages/ray")
            return cls(Path(named), package)
        spec = importlib.util.find_spec("ray")
        assert spec is not None
        assert spec.origin is not None
        return cls(Path(sys.executable), Path(spec.origin).parent)

    @property
    def version(self) -> tuple[int, ...]:
        """As numbers: (2, 60, 0)."""
        words = (self.package / "_version.py").read_text().split('version = "')[1].split('"')[0]
        return tuple(int(number) for number in words.split(".")[:3])

    @property
    def has_tokens(self) -> bool:
        """Before 2.52 a GCS accepts every client."""
        return self.version >= (2, 52)

    @property
    def has_client_server(self) -> bool:
        """A minimal installation has none, and rejects the option for its port."""
        return (self.package.parent / "grpc").is_dir()


@dataclass
class BareGcs:
    """A GCS without nodes: `async with BareGcs(Ray.under_test()) as gcs: gcs.client…`."""

    ray: Ray
    environ: Mapping[str, str] = field(default_factory=dict)
    session: str = "session_test"
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rt"))
        self.client = connect_gcs(self.address, gcs_access(self.environ))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def __aenter__(self) -> Self:
        self.start()
        try:
            await self.until_it_answers()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        self.kill()
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """The program alone; `--undefok` lets older versions overlook what they do not know."""
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [
                    self.ray.package / "core/src/ray/gcs/gcs_server",
                    "--undefok=node_id,session_dir",
                    f"--log_dir={self.folder}",
                    f"--session_dir={self.folder}",
                    "--config_list=e30=",  # {} in base 64
                    f"--gcs_server_port={self.port}",
                    "--metrics-agent-port=0",
                    "--node-ip-address=127.0.0.1",
                    f"--session-name={self.session}",
                    f"--node_id={'ab' * 28}",
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environ},
            )

    def kill(self) -> None:
        """At once, as a machine that dies."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """To the program."""
        assert self._process is not None
        self._process.send_signal(number)

    async def until_it_answers(self, client: Gcs | None = None) -> None:
        """Raises TimeoutError with what the GCS wrote."""
        try:
            await until_it_answers(client or self.client)
        except TimeoutError:
            raise TimeoutError((self.folder / "out").read_text()) from None


async def until_it_answers(client: Gcs, within_s: float = PATIENCE_S) -> None:
    """Until the GCS replies."""
    async with asyncio.timeout(within_s * PATIENCE):
        while True:
            try:
                await client.check_alive()
            except ApiUnavailableError:
                await asyncio.sleep(0.02)
            else:
                return


# --- whole nodes -----------------------------------------------------------------------------------------------------


class RayNodes:
    """A head and workers on 127.0.0.1, in folders of their own."""

    def __init__(self, ray: Ray, environ: Mapping[str, str] | None = None) -> None:
        self.ray = ray
        self.folder = Path(tempfile.mkdtemp(prefix="rt"))
        self.gcs_port = free_port()
        self.mark = secrets.token_hex(16)
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            **(environ or {}),
            MARK: self.mark,
            "RAY_TMPDIR": str(self.folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_raylet_start_wait_time_s": "120",  # of a machine that has much else to do
        }
        self.environ.pop("PYTHONPATH", None)
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.drivers: list[subprocess.Popen[str]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.gcs_port}"

    def start_head(self, *options: str) -> None:
        """Without a monitor: the autoscaler is the test's."""
        self._start(
            "headgroup",
            "head",
            "--head",
            "--no-monitor",
            "--include-dashboard=false",
            f"--port={self.gcs_port}",
            *([f"--ray-client-server-port={free_port()}"] if self.ray.has_client_server else []),
            *options,
        )

    def start_worker(self, instance_id: str, node_type: str, *options: str) -> None:
        """Another node of the same cluster."""
        self._start(node_type, instance_id, f"--address={self.address}", *options)

    def _start(self, node_type: str, instance_id: str, *options: str) -> None:
        environ = {**self.environ, "RAY_CLOUD_INSTANCE_ID": instance_id, "RAY_NODE_TYPE_NAME": node_type}
        command = [
            self.ray.python,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--block",
            "--node-ip-address=127.0.0.1",
            "--object-store-memory=80000000",
            "--min-worker-port=0",
            "--max-worker-port=0",
            f"--dashboard-agent-listen-port={free_port()}",
            *options,
        ]
        with (self.folder / f"{instance_id}.out").open("wb") as out:
            node = subprocess.Popen(command, env=environ, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        self.nodes.append(node)

    def drive(self, program: str, *arguments: str) -> None:
        """Run a program as a driver until the end; returns when it has printed its first line."""
        driver = subprocess.Popen(
            [self.ray.python, "-c", program, self.address, *arguments],
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.drivers.append(driver)
        assert driver.stdout is not None
        patience = threading.Timer(DRIVER_PATIENCE_S, driver.kill)
        patience.start()
        lines = []
        for line in driver.stdout:
            if line.strip() == "ready":
                patience.cancel()
                return
            lines.append(line)
        patience.cancel()
        raise AssertionError("".join(lines))

    def said(self) -> str:
        """What `ray start` wrote."""
        return "\n".join(f"{path.name}: {path.read_text()}" for path in self.folder.glob("*.out"))

    def ray_status(self) -> str:
        """What a user sees."""
        asked = subprocess.run(
            [self.ray.python, "-m", "ray.scripts.scripts", "status", "--address", self.address, "-v"],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
            check=False,
        )
        return asked.stdout + asked.stderr

    def close(self) -> None:
        """End everything that carries our mark, and forget it."""
        for driver in self.drivers:
            driver.kill()
            driver.communicate()
        while pids := marked_pids(self.mark):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for node in self.nodes:
            node.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pids(self, program: str) -> list[int]:
        """Of ours that run this program."""
        return [pid for pid in marked_pids(self.mark) if program in _read(pid, "cmdline").split("\0")[0]]


def marked_pids(mark: str) -> list[int]:
    """Living processes with that mark in their environment."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if f"{MARK}={mark}" in _read(pid, "environ").split("\0")]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""
