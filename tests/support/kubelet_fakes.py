"""A pod runtime and an API server that exist only in memory, for kubelet tests in virtual time.

Containers do what a script says, start after start; the API keeps pods, ConfigMaps and Secrets in a dict and records
every write. Nothing here touches a process or a socket.
"""

import asyncio
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from raytide_sandbox.container_runtime.interface import ContainerRuntimeError, Exit, Image, Mode
from raytide_sandbox.kubelet.apiclient import ApiStatusError
from support import virtual_time

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
NODE_ADDRESS = "10.88.0.1"


def virtual_now() -> datetime:
    """Wall time that follows the loop's own."""
    return EPOCH + timedelta(seconds=virtual_time.elapsed_s())


@dataclass(frozen=True)
class Script:
    """One start of one container: how long it runs and how it ends; None runs until it gets a signal."""

    runs_s: float | None = None
    code: int = 0
    term_s: float | None = 0.0
    """How long it takes to end after SIGTERM; None ignores it."""
    term_code: int = 143
    error: str = ""
    last_words: str = ""


FOREVER = Script()


class FakeContainer:
    def __init__(self, config, script):
        self.config, self.script = config, script
        self.id, self.pid, self.started_at, self.stdin, self.exit = (
            f"fake://{config.name}/{config.attempt}",
            1,
            virtual_now(),
            None,
            None,
        )
        self.signals = []
        self._ended = asyncio.Event()
        if script.runs_s is not None:
            asyncio.get_running_loop().call_later(script.runs_s, self.end, script.code)

    def end(self, code):
        if self.exit is None:
            if self.script.last_words:
                message = next(m.source for m in self.config.mounts if m.target == "/dev/termination-log")
                message.write_text(self.script.last_words)
            self.exit = Exit(code, max(0, code - 128), virtual_now())
            self._ended.set()

    async def wait(self):
        await self._ended.wait()
        return self.exit


class FakeSandbox:
    def __init__(self, config, ip):
        self.config, self.ip, self.is_alive, self.containers = config, ip, True, []
        self._ended = asyncio.Event()

    async def wait(self):
        await self._ended.wait()

    def die(self):
        self.is_alive = False
        for container in self.containers:
            container.end(137)
        self._ended.set()


class FakeExec:
    def __init__(self, code):
        self.code, self.stdin, self.stderr = code, None, None
        self.stdout = self

    async def read(self):
        return b""

    async def wait(self):
        return Exit(self.code, 0, virtual_now())

    def kill(self):
        pass


@dataclass
class FakeRuntime:
    """Every container runs for ever by default; `scripts` are per container name and start."""

    scripts: dict[str, list[Script]] = field(default_factory=dict)
    images: set[str] = field(default_factory=lambda: {"img"})
    mode: Mode = Mode.NS
    node_address: str = NODE_ADDRESS
    sandboxes: list[FakeSandbox] = field(default_factory=list)
    containers: list[FakeContainer] = field(default_factory=list)
    started: list[tuple[float, str]] = field(default_factory=list)
    exec_codes: dict[str, int] = field(default_factory=dict)
    execs: list[tuple[str, ...]] = field(default_factory=list)
    sandbox_failures: int = 0
    names: dict = field(default_factory=dict)

    def image(self, name):
        return Image(name=name, image_id=f"fake://{name}") if name in self.images else None

    async def create_sandbox(self, config):
        if self.sandbox_failures:
            self.sandbox_failures -= 1
            raise ContainerRuntimeError("no room")
        sandbox = FakeSandbox(config, f"10.88.0.{len(self.sandboxes) + 2}")
        self.sandboxes.append(sandbox)
        return sandbox

    async def remove_sandbox(self, sandbox):
        sandbox.die()

    async def start_container(self, sandbox, config):
        scripts = self.scripts.get(config.name, [])
        script = scripts[min(config.attempt, len(scripts) - 1)] if scripts else FOREVER
        self.started.append((virtual_time.elapsed_s(), config.name))
        if script.error:
            raise ContainerRuntimeError(script.error)
        container = FakeContainer(config, script)
        sandbox.containers.append(container)
        self.containers.append(container)
        return container

    async def signal(self, container, signal_number):
        container.signals.append(signal_number)
        if signal_number == signal.SIGTERM and container.script.term_s is not None:
            asyncio.get_running_loop().call_later(container.script.term_s, container.end, container.script.term_code)

    async def kill(self, container):
        container.end(137)
        await container.wait()

    async def exec(self, _container, config):
        self.execs.append(config.argv)
        return FakeExec(self.exec_codes.get(config.argv[0], 0))

    def set_names(self, addresses_by_name):
        self.names = dict(addresses_by_name)

    def starts_of(self, name):
        """When a container was started."""
        return [at for at, started in self.started if started == name]

    def running(self):
        """Names of what runs now."""
        return sorted(c.config.name for c in self.containers if c.exit is None)


class FakeApi:
    """Just enough of an API server for pod workers; `pods` is keyed by namespace/name."""

    def __init__(self):
        self.objects, self.writes, self.statuses = {}, [], []
        self.failures = 0

    def add(self, path, obj):
        self.objects[path] = obj
        return obj

    async def get(self, path, **_query):
        if path not in self.objects:
            raise ApiStatusError(404, "not found")
        return self.objects[path]

    async def merge_patch(self, path, patch):
        if self.failures:
            self.failures -= 1
            raise ApiStatusError(500, "try again")
        self.writes.append(("PATCH", path))
        if path.endswith("/status"):
            self.statuses.append((virtual_time.elapsed_s(), patch["status"]))
        return {}

    async def request(self, method, path, **_options):
        self.writes.append((method, path))
        if path.endswith("/token"):
            return {"status": {"token": f"token-{len(self.writes)}"}}
        return {}

    @property
    def status(self):
        """The last one written."""
        return self.statuses[-1][1]

    def seen(self, pick) -> list:
        """Every different value in the order it was written."""
        values: list = []
        for _, status in self.statuses:
            if not values or values[-1] != pick(status):
                values.append(pick(status))
        return values


class SilentEvents:
    """Remembers events instead of writing them."""

    def __init__(self):
        self.events = []

    def normal(self, _pod, reason, message, _container=""):
        self.events.append((reason, message))

    warning = normal

    def reasons(self) -> set[str]:
        return {reason for reason, _ in self.events}


def build_pod(*containers, inits: Iterable[dict] = (), status=None, metadata=None, **spec) -> dict:
    """A pod bound to node n1, as the API would send it; a container given by name gets an image and a command."""
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "11111111-2222", **(metadata or {})},
        "spec": {
            "nodeName": "n1",
            "containers": [build_container(c) for c in containers or ("c",)],
            **({"initContainers": [build_container(c) for c in inits]} if inits else {}),
            **spec,
        },
        "status": status or {},
    }


def build_container(container) -> dict:
    """From a name, or completed from a dict."""
    given = {"name": container} if isinstance(container, str) else container
    return {"image": "img", "command": ["run"], **given}
