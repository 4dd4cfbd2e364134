"""Run the end-to-end suite in `e2e/`, which installs the chart with helm.

By default on a real control plane with process kubelets (`raytide sandbox up --api kubernetes --audit`). `--node` takes containerd
and a real kubelet in namespaces of this machine, `--kind` a kind cluster of three nodes with the installed Docker and kind, or else
with those of tools/kind; both need the image of `make image`. Where that is not possible, "not run" and the reason are printed.
`--kubeconfig` takes any other cluster. Afterwards the cluster is ended, and whatever it left on the machine is an error.

The tests of the suite depend on each other: if one fails, the whole suite is run once more on another cluster. If that passes, the
exit code is 0, and the first output is appended to `RAYTIDE_RERUN_LOG`. Called by `make e2e`, with ON=node and ON=kind too.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import kind_docker
import machine_speed
import node
import node_images
import node_traces
from kind_cluster import KindCluster, KindError
from kube_tools import ToolMissingError, find_tool
from node_settings import NodeSettings

ROOT = Path(__file__).resolve().parents[2]
RAYTIDE = Path(sys.executable).parent / "raytide"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raytide"
STATE = CACHE / "e2e"
IMAGE = os.environ.get("RAYTIDE_E2E_IMAGE") or "raytide:dev"
ENDS_WITHIN_S = 10.0
TEST_ENDS_WITHIN_S = 1200.0
TESTS_FAILED = 1
"""Exit code of pytest."""

NEXT_IMAGE = "raytide:next"
"""The same image under another name, to which the chart is upgraded."""
RAY_IMAGE = "rayproject/ray:2.60.0"


class E2eError(Exception):
    """The suite cannot be run; the message is printed without a traceback."""


class TestsFailedError(E2eError):
    """Tests failed; the message is the output of the suite."""


def run(*words: str | Path, deadline_s: float, is_shown: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program; raises E2eError if it exceeds the deadline. Its output is captured unless `is_shown`."""
    command = [str(word) for word in words]
    try:
        return subprocess.run(command, text=True, timeout=deadline_s, check=False, capture_output=not is_shown)
    except subprocess.TimeoutExpired as error:
        raise E2eError(f"not within {deadline_s:g} s: {' '.join(command)}") from error


def run_suite(
    kubeconfig: Path,
    audit_log: str,
    wanted: list[str],
    inside: Callable[..., list[str]] = lambda *words: [*words],
    variables: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Run pytest on e2e/; returns its exit code. Raises TestsFailedError if a test failed, and ToolMissingError.

    `inside` returns the command line that runs a command where the cluster is reachable; `variables` are added to the environment.
    """
    folders = {str(find_tool(name).parent) for name in ("helm", "kubectl")}
    patience = max(float(os.environ.get("RAYTIDE_TEST_PATIENCE") or 1), machine_speed.patience())
    print(f"e2e: deadlines are {patience:.1f} times as long as on an idle machine", flush=True)
    environ = os.environ | {
        "RAYTIDE_TEST_PATIENCE": f"{patience:.1f}",
        "PATH": os.pathsep.join([*sorted(folders), os.environ.get("PATH", "")]),
        "KUBECONFIG": str(kubeconfig),
        "RAYTIDE_E2E_IMAGE": IMAGE,
        "RAYTIDE_E2E_AUDIT_LOG": audit_log,
        **variables,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # plugins of the other tests
    }
    options = ("-p", "pytest_timeout", "-c", "pytest.ini", "--rootdir", ".")
    timeout_s = f"{TEST_ENDS_WITHIN_S * patience:.0f}"
    command = inside(sys.executable, "-m", "pytest", *options, "--timeout", timeout_s, *wanted)
    printed = []
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=environ, cwd=ROOT / "e2e", text=True, **pipes) as suite:
        assert suite.stdout is not None  # noqa: S101 - it is a pipe
        for line in suite.stdout:
            printed.append(line)
            print(line, end="", flush=True)
    if suite.returncode == TESTS_FAILED:
        raise TestsFailedError("".join(printed))
    return suite.returncode


def not_run(message: str) -> int:
    """Print the message; returns the exit code, which is 1 if every level has to run."""
    print(message)
    return 1 if os.environ.get("RAYTIDE_ALL_RUN") else 0


# --- on process kubelets -------------------------------------------------------------------------------------------------


KIND_ONLY = ("--ignore", "test_2c_nodes.py")
"""Requires two nodes and an upgrade to another image: the nodes of the sandbox have no images, and `--node` has one node."""


def on_sandbox(wanted: list[str], *, is_kept: bool) -> int:
    """Run the suite on a sandbox; returns its exit code, or 1 if processes of the sandbox remain."""
    before = set(node_traces.processes(str(STATE)))  # such as a shell with this kubeconfig in its environment
    run(RAYTIDE, "sandbox", "down", "--state-dir", STATE, deadline_s=60, is_shown=False)
    up = run(RAYTIDE, "sandbox", "up", "--api", "kubernetes", "--audit", "--state-dir", STATE, deadline_s=180)
    if up.returncode:
        raise E2eError("the control plane did not start")
    try:
        record = json.loads((STATE / "sandbox.json").read_text())
        ignored = [*KIND_ONLY, "--ignore", "test_2d_why.py"]  # process kubelets pull no images
        code = run_suite(STATE / "kubeconfig", record["audit_log"], [*wanted, *ignored])
    finally:
        if not is_kept:
            run(RAYTIDE, "sandbox", "down", "--state-dir", STATE, deadline_s=120)
    remaining = [] if is_kept else remaining_processes(before)
    if remaining:
        print("e2e: these processes are left:", *remaining, sep="\n  ")
    return code or (1 if remaining else 0)


def remaining_processes(before: set[str]) -> list[str]:
    """Command lines of processes of the sandbox that have not ended after `ENDS_WITHIN_S`."""
    deadline = time.monotonic() + ENDS_WITHIN_S
    while (found := set(node_traces.processes(str(STATE))) - before) and time.monotonic() < deadline:
        time.sleep(0.2)
    return sorted(found)


# --- on a node -----------------------------------------------------------------------------------------------------------


def on_node(wanted: list[str], *, is_kept: bool) -> int:
    """Run the suite on containerd and a kubelet; returns its exit code, or that of `not_run`."""
    try:
        kept = (node_images.ray(RAY_IMAGE),)
        settings = node.prepare((raytide_archive(),), kept_images=kept, is_tethered=not is_kept)
    except node.NodeMissingError as error:
        return not_run(f"e2e on a node: not run: {error}")

    def run_on(running: node.RunningNode) -> int:
        if is_kept:
            print_access("the node", running, running.kubeconfig)
        return run_suite(running.kubeconfig, str(running.audit_log), [*wanted, *KIND_ONLY], running.command)

    return in_namespaces("e2e on a node", settings, run_on, is_kept=is_kept)


def in_namespaces(
    level: str, settings: NodeSettings, run_on: Callable[[node.RunningNode], int], *, is_kept: bool
) -> int:
    """Start a node or a Docker daemon, call `run_on` and end it; returns that exit code, or 1 if it left traces."""
    before = machine_before(settings)
    started = node.Node(settings)
    running = started.start()
    try:
        print(f"{level}: {running.seconds}", flush=True)
        code = run_on(running)
    finally:
        if not is_kept:
            started.end()
    return code or (1 if not is_kept and are_traces_left(before, settings) else 0)


def print_access(what: str, running: node.RunningNode, kubeconfig: Path) -> None:
    """Print how to use kubectl on a cluster that keeps running."""
    kubectl = " ".join(running.command("kubectl", "--kubeconfig", kubeconfig))
    print(f"{what} runs until `make e2e DOWN=1`; use it with {kubectl}", flush=True)


def machine_before(settings: NodeSettings) -> node_traces.Snapshot:
    """Snapshot of the machine after the removal of what an earlier node left, which is not a change by the new one."""
    node.clear(settings)
    return node_traces.snapshot(str(settings.state), settings.packages)


def are_traces_left(before: node_traces.Snapshot, settings: NodeSettings) -> bool:
    """Whether the node changed the machine since this snapshot; prints all changes."""
    after = node_traces.snapshot(str(settings.state), settings.packages)
    if others := node_traces.other_changes(before, after):
        print("e2e: other programs changed this machine meanwhile:", *others, sep="\n  ")
    left = node_traces.traces(before, after)
    if left:
        print("e2e: the node left traces on this machine:", *left, sep="\n  ")
    return bool(left)


def raytide_archive() -> Path:
    """The image of `make image`; raises E2eError if it does not exist."""
    archive = CACHE / "image" / "raytide.tar"
    if not archive.exists():
        raise E2eError(f"there is no image at {archive}: run `make image`")
    return archive


# --- on kind -------------------------------------------------------------------------------------------------------------


def on_kind(wanted: list[str], *, is_kept: bool) -> int:
    """Run the suite on a kind cluster of three nodes; returns its exit code, or that of `not_run`."""
    reason = kind_docker.why_not_installed()
    archive = raytide_archive()
    try:
        level = on_own_docker if reason else on_installed_docker
        return level(archive, wanted, is_kept=is_kept)
    except node.NodeMissingError as error:
        own = f"this machine allows no Docker daemon of its own: {error}"
        return not_run(f"e2e on kind: not run: {reason}, and {own}")


def on_installed_docker(archive: Path, wanted: list[str], *, is_kept: bool) -> int:
    """Run the suite with the installed Docker and kind; nodes pull Ray's image if Docker does not have it."""
    cluster = KindCluster(kind_docker.installed(), CACHE / "e2e-kind", find_tool("kubectl"))
    try:
        return run_on_cluster(cluster, archive, wanted, [RAY_IMAGE])
    finally:
        if not is_kept:
            cluster.delete()


def on_own_docker(archive: Path, wanted: list[str], *, is_kept: bool) -> int:
    """Run the suite with a Docker daemon in namespaces of this machine and the node image of kind_image.py."""
    own = kind_docker.prepare_own((node_images.ray(RAY_IMAGE),), is_tethered=not is_kept)

    def run_on(running: node.RunningNode) -> int:
        docker = own.reached_by(running)
        print(f"e2e on kind: node image {docker.load(own.image)}", flush=True)
        cluster = KindCluster(docker, own.settings.state / "cluster", own.settings.kubectl)
        if is_kept:
            print_access("the cluster", running, cluster.kubeconfig)
        return run_on_cluster(cluster, archive, wanted, [], running.command)

    return in_namespaces("e2e on kind", own.settings, run_on, is_kept=is_kept)


def run_on_cluster(
    cluster: KindCluster,
    archive: Path,
    wanted: list[str],
    images: list[str],
    inside: Callable[..., list[str]] = lambda *words: [*words],
) -> int:
    """Create the cluster, load the archive and those of the images that Docker has, and run the suite; its exit code."""
    code = 1
    try:
        print(f"e2e on kind: {cluster.create()}; {cluster.load(archive)}", flush=True)
        for image in images:
            cluster.load_from_docker(image)
        cluster.tag(f"docker.io/library/{IMAGE}", f"docker.io/library/{NEXT_IMAGE}")
        variables = {"RAYTIDE_E2E_NEXT_IMAGE": NEXT_IMAGE}
        code = run_suite(cluster.kubeconfig, str(cluster.audit_log), wanted, inside, variables)
    finally:
        if code:
            cluster.export_logs()
    return code


def main() -> int:
    """Run the suite as the options say; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--node", action="store_true", help="on containerd and a kubelet in namespaces of this machine")
    parser.add_argument("--kind", action="store_true", help="on a kind cluster of its own")
    parser.add_argument("--kubeconfig", type=Path, help="on this cluster, whose nodes can pull the image")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    chosen, wanted = parser.parse_known_args()
    started = time.monotonic()
    try:
        code = run_level_twice(chosen, wanted)
    except TestsFailedError:
        return TESTS_FAILED
    except (E2eError, node.NodeError, node_images.ImageError, KindError, ToolMissingError) as error:
        print(f"e2e: {error}")
        return 1
    print(f"e2e: {time.monotonic() - started:.0f} s")
    return code


def run_level_twice(chosen: argparse.Namespace, wanted: list[str]) -> int:
    """Run the suite, and once more if a test fails and the cluster is not to be kept; returns the exit code."""
    try:
        return run_level(chosen, wanted)
    except TestsFailedError as first:
        if chosen.keep:
            raise
        print("=== e2e: run again from the start", flush=True)
        code = run_level(chosen, wanted)
        if code == 0:
            report_second_run(str(first))
        return code


def run_level(chosen: argparse.Namespace, wanted: list[str]) -> int:
    """Run the suite on the chosen cluster; returns the exit code."""
    if chosen.kubeconfig:
        return run_suite(chosen.kubeconfig, os.environ.get("RAYTIDE_E2E_AUDIT_LOG", ""), wanted)
    level = on_node if chosen.node else on_kind if chosen.kind else on_sandbox
    return level(wanted, is_kept=chosen.keep)


def report_second_run(first: str) -> None:
    """Report the failures of the first run, at the end of the level and in the log of the run."""
    title = "=== passed only when run again, to be mended: the end-to-end suite"
    print(title)
    if path := os.environ.get("RAYTIDE_RERUN_LOG"):
        with Path(path).open("a", encoding="utf-8") as log:
            log.write(f"{title}\n--- first run:\n{first}\n")


if __name__ == "__main__":
    sys.exit(main())
