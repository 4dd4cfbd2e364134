"""Pods as local processes, through the runtime's protocol, in each mode this machine allows."""

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from raytide_sandbox.container_runtime import host_network_rewrite
from raytide_sandbox.container_runtime.detect import choose_runtime
from raytide_sandbox.container_runtime.interface import (
    Container,
    ContainerConfig,
    ContainerRuntimeError,
    ExecConfig,
    MemoryVolume,
    Mount,
    PodSandboxConfig,
    Runtime,
    Sandbox,
)
from raytide_sandbox.container_runtime.process_tags import marked, node_mark
from support.deadlines import PATIENCE
from support.node_modes import BOTH_MODES, needs_namespaces, now
from support.ports import free_port

# ruff: noqa: ASYNC110, ASYNC240 - a test waits for states of processes, and may look at files at once
pytestmark = pytest.mark.timeout(20)


class Node:
    """A runtime with the least words around it."""

    def __init__(self, runtime: Runtime, directory: Path) -> None:
        self.runtime = runtime
        self.directory = directory

    async def pod(self, name: str = "a", **more: object) -> Sandbox:
        config = PodSandboxConfig(uid=f"uid-{name}", namespace="default", name=name, hostname=name, **more)  # type: ignore[arg-type]
        return await self.runtime.create_sandbox(config)

    async def start(self, pod: Sandbox, script: str, name: str = "main", **more: object) -> Container:
        log_path = self.directory / "logs" / f"{pod.config.name}.{name}.log"
        config = ContainerConfig(name=name, image="debian", argv=("sh", "-c", script), log_path=log_path, **more)  # type: ignore[arg-type]
        return await self.runtime.start_container(pod, config)

    async def run(self, pod: Sandbox, script: str, name: str = "main", **more: object) -> str:
        """What a container that ends well writes."""
        container = await self.start(pod, script, name, **more)
        exit_ = await asyncio.wait_for(container.wait(), 10 * PATIENCE)
        text = container.config.log_path.read_text()
        assert exit_.code == 0, text
        container.config.log_path.unlink()
        return text

    async def exec(self, container: Container, *argv: str) -> tuple[int, str]:
        running = await self.runtime.exec(container, ExecConfig(argv=argv))
        text = b""
        while chunk := await asyncio.wait_for(running.stdout.read(), 10 * PATIENCE):
            text += chunk
        return (await running.wait()).code, text.decode()

    def written(self, container: Container) -> str:
        return container.config.log_path.read_text() if container.config.log_path.exists() else ""


async def eventually(is_so: Callable[[], object], deadline_s: float = 5.0) -> None:
    async with asyncio.timeout(deadline_s * PATIENCE):
        while not is_so():
            await asyncio.sleep(0.01)


async def open_node(mode: str) -> AsyncIterator[Node]:
    directory = Path(tempfile.mkdtemp(prefix="rt"))
    choice = await choose_runtime(mode, state_dir=directory / "s", now=now)
    try:
        yield Node(choice.runtime, directory)
    finally:
        await choice.runtime.stop()
        left = marked(node_mark(directory / "s"))
        shutil.rmtree(directory)
    assert not left


@pytest.fixture(params=BOTH_MODES)
async def node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    async for opened in open_node(request.param):
        yield opened


@pytest.fixture(params=[pytest.param("ns", marks=needs_namespaces())])
async def ns_node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    async for opened in open_node(request.param):
        yield opened


@pytest.fixture(params=[pytest.param("plain", marks=pytest.mark.node_mode("plain"))])
async def plain_node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    async for opened in open_node(request.param):
        yield opened


# --- containers ----------------------------------------------------------------------------------------------------


async def test_a_container_writes_its_log_and_ends_with_its_code(node: Node) -> None:
    pod = await node.pod()
    container = await node.start(pod, "echo $GREETING; echo oops >&2; exit 3", env={"GREETING": "hello"})
    exit_ = await asyncio.wait_for(container.wait(), 5 * PATIENCE)
    assert (exit_.code, exit_.signal) == (3, 0)
    assert node.written(container) == "hello\noops\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"argv": ("no-such-command",)}, "no-such-command", id="a command that does not exist"),
        pytest.param({"argv": ()}, "no command", id="no command at all"),
        pytest.param({"image": "nginx:1"}, "nginx:1", id="an image without a stand-in"),
    ],
)
async def test_a_container_that_cannot_start_is_an_error_with_the_cause(
    node: Node, change: dict[str, object], words: str
) -> None:
    pod = await node.pod()
    given = {"name": "c", "image": "debian", "argv": ("true",), "log_path": node.directory / "log", **change}
    with pytest.raises(ContainerRuntimeError, match=words):
        await node.runtime.start_container(pod, ContainerConfig(**given))  # type: ignore[arg-type]
    assert await node.run(pod, "echo still fine") == "still fine\n"


async def test_sigterm_reaches_the_main_process_alone(node: Node) -> None:
    pod = await node.pod()
    script = 'sh -c "trap \'echo child got it\' TERM; while :; do :; done" & trap "echo main got it; exit 7" TERM; echo up; wait'
    container = await node.start(pod, script)
    await eventually(lambda: "up" in node.written(container))
    await node.runtime.signal(container, signal.SIGTERM)
    exit_ = await asyncio.wait_for(container.wait(), 5 * PATIENCE)
    assert exit_.code == 7
    assert node.written(container) == "up\nmain got it\n"


async def test_kill_takes_daemons_that_detached_twice(node: Node) -> None:
    pod = await node.pod()
    other = await node.start(pod, "echo up; exec sleep 1000", name="other")
    container = await node.start(pod, "setsid sh -c 'setsid sleep 1000 & echo up' & exec sleep 1000")
    await eventually(lambda: "up" in node.written(container) and "up" in node.written(other))
    await node.runtime.kill(container)
    exit_ = await asyncio.wait_for(container.wait(), 5 * PATIENCE)
    assert (exit_.code, exit_.signal) == (137, 9)
    key = node_mark(node.directory / "s")
    sleeping = [pid for pid in marked(key) if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(sleeping) == 1, "only the other container's"
    assert other.exit is None


async def test_a_container_starts_again_with_empty_files_of_its_own(node: Node) -> None:
    pod = await node.pod()
    assert await node.run(pod, 'touch "$HOME/x"; cd "$HOME"; ls', attempt=0) == "x\n"
    assert await node.run(pod, 'cd "$HOME"; ls', attempt=1) == ""


async def test_standard_input_and_a_terminal_are_available_on_request(node: Node) -> None:
    pod = await node.pod()
    container = await node.start(pod, "read line; echo got $line", has_stdin=True)
    assert container.stdin is not None
    await container.stdin.write(b"words\n")
    assert (await asyncio.wait_for(container.wait(), 5 * PATIENCE)).code == 0
    assert node.written(container) == "got words\n"
    terminal = await node.start(pod, "test -t 0 && test -t 1 && echo terminal", name="t", is_tty=True)
    assert (await asyncio.wait_for(terminal.wait(), 5 * PATIENCE)).code == 0
    await eventually(lambda: "terminal" in node.written(terminal))


async def test_an_environment_may_be_longer_than_a_packet(node: Node) -> None:
    pod = await node.pod()
    assert await node.run(pod, "echo ${#LONG}", env={"LONG": "x" * 100_000}) == "100000\n"


async def test_a_container_reads_its_volumes(ns_node: Node) -> None:
    pod = await ns_node.pod()
    for name in ("one", "two"):
        (ns_node.directory / name).mkdir()
        (ns_node.directory / name / "file").write_text(name)
    mounts = [Mount(source=ns_node.directory / name, target="/etc/settings/x") for name in ("one", "two")]
    assert await ns_node.run(pod, "cat /etc/settings/x/file", name="c1", mounts=(mounts[0],)) == "one"
    assert await ns_node.run(pod, "cat /etc/settings/x/file", name="c2", mounts=(mounts[1],)) == "two"
    locked = Mount(source=ns_node.directory / "one", target="/data", is_read_only=True)
    written = await ns_node.run(pod, "touch /data/y 2>/dev/null || echo refused", mounts=(locked,))
    assert written == "refused\n"


@pytest.mark.parametrize("target", ["/dev/termination-log", "/var/run/secrets/x/token", "/etc/hosts", "/new/file"])
async def test_a_single_file_can_be_mounted_anywhere(ns_node: Node, target: str) -> None:
    pod = await ns_node.pod()
    (ns_node.directory / "file").write_text("here ")
    mounts = (Mount(source=ns_node.directory / "file", target=target),)
    assert await ns_node.run(pod, f"cat {target}; echo x > /dev/null && echo y >> {target}", mounts=mounts) == "here "
    assert (ns_node.directory / "file").read_text() == "here y\n"


async def test_a_volume_s_path_is_replaced_in_commands_where_nothing_can_be_mounted(plain_node: Node) -> None:
    pod = await plain_node.pod()
    (plain_node.directory / "one").mkdir()
    (plain_node.directory / "one" / "file").write_text("found")
    mount = Mount(source=plain_node.directory / "one", target="/etc/settings")
    assert await plain_node.run(pod, "cat /etc/settings/file", mounts=(mount,)) == "found"


async def test_a_container_gets_the_path_of_its_token_where_nothing_can_be_mounted(plain_node: Node) -> None:
    pod = await plain_node.pod()
    mount = Mount(source=plain_node.directory, target="/var/run/secrets/kubernetes.io/serviceaccount")
    told = await plain_node.run(pod, 'echo "$RAYTIDE_SERVICE_ACCOUNT_DIR"', mounts=(mount,))
    assert told.strip() == str(plain_node.directory)


# --- exec ----------------------------------------------------------------------------------------------------------


async def test_exec_runs_concurrently_with_the_main_process(node: Node) -> None:
    pod = await node.pod()
    container = await node.start(pod, "echo up > $HOME/note; exec sleep 1000", env={"WHO": "me"})
    await eventually(lambda: container.pid)

    async def look() -> tuple[int, str]:
        return await node.exec(container, "sh", "-c", "cat $HOME/note; echo $WHO; exit 5")

    async with asyncio.timeout(5 * PATIENCE):
        while (await look())[1] != "up\nme\n":
            await asyncio.sleep(0.01)
    assert (await look())[0] == 5


async def test_exec_uses_pipes_and_terminals(node: Node) -> None:
    pod = await node.pod()
    container = await node.start(pod, "exec sleep 1000")
    piped = await node.runtime.exec(container, ExecConfig(argv=("cat",), has_stdin=True))
    assert piped.stdin is not None
    writing = asyncio.create_task(piped.stdin.write(b"x" * 200_000))
    length = 0
    while length < 200_000:
        length += len(await asyncio.wait_for(piped.stdout.read(), 5 * PATIENCE))
    await writing
    piped.stdin.close()
    assert await asyncio.wait_for(piped.stdout.read(), 5 * PATIENCE) == b""
    assert (await piped.wait()).code == 0
    terminal = await node.runtime.exec(container, ExecConfig(argv=("sh", "-c", "read x; stty size"), is_tty=True))
    assert terminal.stdin is not None
    assert terminal.stderr is None
    terminal.stdin.resize(columns=99, rows=33)
    await terminal.stdin.write(b"\n")
    text = b""
    while chunk := await asyncio.wait_for(terminal.stdout.read(), 5 * PATIENCE):
        text += chunk
    assert b"33 99" in text


async def test_an_exec_that_takes_too_long_can_be_killed(node: Node) -> None:
    pod = await node.pod()
    container = await node.start(pod, "exec sleep 1000")
    slow = await node.runtime.exec(container, ExecConfig(argv=("sleep", "1000")))
    slow.kill()
    assert (await asyncio.wait_for(slow.wait(), 5 * PATIENCE)).code == 137
    assert container.exit is None
    with pytest.raises(ContainerRuntimeError, match="nothing-like-it"):
        await node.runtime.exec(container, ExecConfig(argv=("nothing-like-it",)))


# --- network -------------------------------------------------------------------------------------------------------

SERVER = (
    "import http.server,sys,os\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "  def do_GET(s): s.send_response(200); s.end_headers(); s.wfile.write(os.environ['WHO'].encode())\n"
    "  def log_message(s,*a): pass\n"
    "http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), H).serve_forever()\n"
)


async def serve(node: Node, pod: Sandbox, port: int) -> Container:
    """A container that answers with its pod's name."""
    config = ContainerConfig(
        name="web",
        image="python",
        argv=("python3", "-c", SERVER, pod.ip, str(port)),
        env={"WHO": pod.config.name},
        log_path=node.directory / "web.log",
    )
    return await node.runtime.start_container(pod, config)


async def fetch(node: Node, pod: Sandbox, port: int) -> str:
    async with asyncio.timeout(10 * PATIENCE):
        while True:
            try:
                connection = await node.runtime.connect(pod, port, 1)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            reader, writer = await asyncio.open_connection(sock=connection)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            text = (await reader.read()).decode()
            writer.close()
            return text.rpartition("\r\n")[2]


async def test_two_pods_serve_the_same_port_and_the_host_reaches_both(node: Node) -> None:
    pods = [await node.pod(name) for name in ("a", "b")]
    port = free_port()
    for pod in pods:
        await serve(node, pod, port)
    assert [await fetch(node, pod, port) for pod in pods] == ["a", "b"]


async def test_pods_find_each_other_by_name(node: Node) -> None:
    first, second = await node.pod("a"), await node.pod("b")
    port = free_port()
    await serve(node, first, port)
    await fetch(node, first, port)
    node.runtime.set_names({"web.default.svc.cluster.local": [first.ip]})
    url = f"http://web.default.svc.cluster.local:{port}"
    get = f"{sys.executable} -c \"import urllib.request as u; print(u.urlopen('{url}').read())\""
    assert await node.run(second, get) == "b'a'\n"


async def test_pods_reach_what_listens_for_them_on_the_host(node: Node) -> None:
    pod = await node.pod()
    node.runtime.set_names({"kubernetes.default.svc.cluster.local": [node.runtime.node_address]})
    with await node.runtime.listen_inside(0) as listening:
        where = f"('kubernetes.default.svc', {listening.getsockname()[1]})"
        await node.run(pod, f"{sys.executable} -c \"import socket; socket.create_connection({where}).send(b'hello')\"")
        connection, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(listening), 5 * PATIENCE)
        with connection:
            assert await asyncio.get_running_loop().sock_recv(connection, 10) == b"hello"


async def test_the_node_keeps_its_hardware_address_when_pods_come(ns_node: Node) -> None:
    """A client that connected to it before would otherwise reach nothing for half a minute."""
    look = "getent hosts no.such.name; awk '$1 == \"" + ns_node.runtime.node_address + "\" {print $4}' /proc/net/arp"
    seen = [await ns_node.run(await ns_node.pod(f"p{i}"), look) for i in range(8)]
    assert set(seen) == {"02:00:00:00:00:01\n"}


async def test_localhost_is_the_pod(ns_node: Node) -> None:
    pod = await ns_node.pod()
    config = {"WHO": "x"}
    await ns_node.start(pod, f'exec {sys.executable} -c "{SERVER}" 127.0.0.1 8265', env=config)
    wait = "until wget -q -O- http://localhost:8265; do sleep 0.05; done"
    assert await ns_node.run(pod, wait, name="other") == "x"


# --- what a pod in namespaces sees ---------------------------------------------------------------------------------


async def test_a_pod_has_its_own_processes_names_limits_and_memory(ns_node: Node) -> None:
    pod = await ns_node.pod(
        "worker-1", memory_limit_bytes=2 << 30, cpu_limit_millis=1500, shm_bytes=32 << 20, subdomain="group"
    )
    text = await ns_node.run(
        pod,
        "hostname; cat /etc/hostname; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max;"
        "df -k --output=size /dev/shm | tail -1; cat /etc/resolv.conf; getent hosts worker-1; ls /proc | grep -c '^[0-9]'",
    )
    lines = text.splitlines()
    assert lines[:4] == ["worker-1", "worker-1", "2147483648", "150000 100000"]
    assert int(lines[4]) == 32 * 1024
    assert "search default.svc.cluster.local svc.cluster.local cluster.local" in lines
    assert lines[-2].split()[:2] == [pod.ip, "worker-1.group.default.svc.cluster.local"]
    assert int(lines[-1]) < 8


async def test_host_files_are_read_only_and_home_folders_are_hidden(ns_node: Node) -> None:
    pod = await ns_node.pod()
    home = Path.home()
    seen = await ns_node.run(
        pod, f"touch /etc/x /usr/x /opt/x 2>/dev/null; ls {home} 2>/dev/null; touch /tmp/y /run/y; ls /tmp /run"
    )
    assert seen.splitlines().count("y") == 2
    assert not any(Path(top, "x").exists() for top in ("/etc", "/usr", "/opt"))
    assert (
        await ns_node.run(pod, f"{sys.executable} -c 'import raytide_sandbox.container_runtime.interface; print(1)'")
        == "1\n"
    )


async def test_a_memory_volume_is_shared_by_containers_and_has_a_size(ns_node: Node) -> None:
    path = ns_node.directory / "volume"
    path.mkdir()
    pod = await ns_node.pod(memory_volumes=(MemoryVolume(path=path, size_bytes=8 << 20),))
    mounts = (Mount(source=path, target="/cache"),)
    await ns_node.run(pod, "echo kept > /cache/x", mounts=mounts)
    text = await ns_node.run(pod, "cat /cache/x; df -k --output=size /cache | tail -1", name="other", mounts=mounts)
    assert text.split() == ["kept", str(8 * 1024)]
    assert not (path / "x").exists(), "memory of the pod, not the host's disk"


async def test_ray_sees_no_other_pod_s_shared_memory(ns_node: Node) -> None:
    one, two = await ns_node.pod("one"), await ns_node.pod("two")
    await ns_node.run(one, "touch /dev/shm/plasma")
    assert await ns_node.run(two, "ls /dev/shm") == ""
    assert await ns_node.run(one, "ls /dev/shm", name="sidecar") == "plasma\n"


# --- ends ----------------------------------------------------------------------------------------------------------


async def test_a_removed_pod_leaves_nothing(node: Node) -> None:
    pod = await node.pod()
    container = await node.start(
        pod, "setsid sh -c 'setsid sleep 1000 & echo up' & trap '' TERM; while :; do sleep 1; done"
    )
    await eventually(lambda: "up" in node.written(container))
    await asyncio.wait_for(node.runtime.remove_sandbox(pod), 5 * PATIENCE)
    assert not pod.is_alive
    assert container.exit is not None
    assert container.exit.code == 137
    assert not [pid for pid in marked(node_mark(node.directory / "s")) if b"sleep" in cmdline(pid)]
    assert not list((node.directory / "s" / "p").iterdir())


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_a_pod_whose_first_process_is_killed_ends_and_can_be_recreated(node: Node) -> None:
    pod = await node.pod()
    container = await node.start(pod, "setsid sh -c 'setsid sleep 1000 & echo up' & exec sleep 1000")
    await eventually(lambda: "up" in node.written(container))
    os.kill(first_process(node, container), signal.SIGKILL)
    await asyncio.wait_for(pod.wait(), 5 * PATIENCE)
    assert container.exit is not None
    assert (container.exit.code, container.exit.signal) == (137, 9)
    assert not [pid for pid in marked(node_mark(node.directory / "s")) if b"sleep" in cmdline(pid)]
    with pytest.raises(ContainerRuntimeError):
        await node.start(pod, "true")
    await node.runtime.remove_sandbox(pod)
    again = await node.pod()
    assert await node.run(again, "echo back", name="again") == "back\n"


def name_of(pid: int) -> str:
    """The kernel's name of a process; empty when it has just ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def first_process(node: Node, container: Container) -> int:
    """The parent of a container's main process, as the host counts."""
    mark = f"{node.directory}/s:".encode()
    mains = [p for p in marked(mark.decode()) if b"sleep" in cmdline(p)]
    parents = {int(Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split()[1]) for p in mains}
    inits = [p for p in parents if b"node_init" in cmdline(p)]
    assert len(inits) == 1, container.config.name
    return inits[0]


async def test_the_loss_of_the_node_s_first_process_is_reported(node: Node) -> None:
    pod = await node.pod()
    container = await node.start(pod, "exec sleep 1000")
    for pid in [pid for pid in marked(node_mark(node.directory / "s")) if name_of(pid) == "raytide-node"]:
        with contextlib.suppress(ProcessLookupError):  # the first's end is the end of its children
            os.kill(pid, signal.SIGKILL)
    assert "first process" in await asyncio.wait_for(node.runtime.wait_failed(), 5 * PATIENCE)
    await asyncio.wait_for(pod.wait(), 5 * PATIENCE)
    assert container.exit is not None


async def test_a_state_directory_serves_one_sandbox(node: Node) -> None:
    with pytest.raises(ContainerRuntimeError, match="another sandbox is using"):
        await choose_runtime("plain", state_dir=node.directory / "s", now=now)


@pytest.fixture
def reservations_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes of this process reserve indices among themselves: those of other test processes take and release theirs
    at any time, and which number is assigned next depends on it."""
    monkeypatch.setattr(host_network_rewrite, "reservation_port", functools.cache(lambda _index: free_port()))


@pytest.mark.usefixtures("reservations_of_this_test")
async def test_two_sandboxes_of_one_machine_share_no_address_and_no_port(plain_node: Node) -> None:
    async for other in open_node("plain"):
        pods = [await plain_node.pod("a"), await other.pod("a"), await other.pod("b")]
        assert len({pod.ip for pod in pods}) == 3
        assert len({pod.ip.rpartition(".")[2] for pod in pods}) == 3, "Ray's ports follow from the last number"
    assert (await plain_node.pod("c")).ip.rpartition(".")[2] == pods[1].ip.rpartition(".")[2], "free again"


async def test_a_mode_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContainerRuntimeError, match="sideways"):
        await choose_runtime("sideways", state_dir=tmp_path, now=now)
