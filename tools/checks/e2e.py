"""Does the chart, installed by helm, do the whole job?

Starts a real control plane with process kubelets (`raytide sandbox up --api kubernetes --audit`), runs the suite of `e2e/`
against it, which knows nothing but a kubeconfig, an image name and the audit log, ends it and looks whether anything is
left. `--node` takes containerd and a real kubelet in namespaces of this machine, `--kind` a kind cluster of three nodes, with
the Docker and kind that are installed or else with those of tools/kind, both with the image built from the Dockerfile; where
that is not possible it says "not run" and why. `--kubeconfig` takes any other
cluster. The suite is one story: if a test fails, all of it is run once more, on another cluster, and if that passes, the level
is green and `RAYTIDE_RERUN_LOG` gets both outputs. Called by `make e2e`, `make e2e ON=node` and `make e2e ON=kind`.
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
    """What a person should read instead of a traceback."""


class TestsFailedError(E2eError):
    """Tests failed; the text is the output of the suite."""


def run(*words: str | Path, deadline_s: float, is_shown: bool = True) -> subprocess.CompletedProcess[str]:
    """One program; its words are shown unless they are wanted."""
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
    more: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Run pytest on e2e/; returns its exit code, and raises TestsFailedError if a test failed.

    `inside` makes a command one that reaches the cluster; `more` are variables with what only this level has.
    """
    try:
        folders = {str(find_tool(name).parent) for name in ("helm", "kubectl")}
    except ToolMissingError as error:
        raise E2eError(str(error)) from error
    patience = max(float(os.environ.get("RAYTIDE_TEST_PATIENCE") or 1), machine_speed.patience())
    print(f"e2e: deadlines are {patience:.1f} times as long as on an idle machine", flush=True)
    environ = os.environ | {
        "RAYTIDE_TEST_PATIENCE": f"{patience:.1f}",
        "PATH": os.pathsep.join([*sorted(folders), os.environ.get("PATH", "")]),
        "KUBECONFIG": str(kubeconfig),
        "RAYTIDE_E2E_IMAGE": IMAGE,
        "RAYTIDE_E2E_AUDIT_LOG": audit_log,
        **more,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the plugins of our own tests have no business there
    }
    options = [
        "-p",
        "pytest_timeout",
        "-c",
        "pytest.ini",
        "--rootdir",
        ".",
        "--timeout",
        f"{TEST_ENDS_WITHIN_S * patience:.0f}",
    ]
    command = [sys.executable, "-m", "pytest", *options, *wanted]
    printed = []
    with subprocess.Popen(
        inside(*command), env=environ, cwd=ROOT / "e2e", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as suite:
        assert suite.stdout is not None  # noqa: S101 - it is a pipe
        for line in suite.stdout:
            printed.append(line)
            print(line, end="", flush=True)
    if suite.returncode == TESTS_FAILED:
        raise TestsFailedError("".join(printed))
    return suite.returncode


# --- a real control plane here -------------------------------------------------------------------------------------------


ON_KIND_ALONE = ("--ignore", "test_2c_nodes.py")
"""Two nodes for pods and an upgrade to another image: the sandbox has three nodes without images, a node here is one."""


def on_sandbox(wanted: list[str], *, is_kept: bool) -> int:
    """Start, test, end, look."""
    before = set(node_traces.processes(str(STATE)))  # somebody's shell may have our kubeconfig in its environment
    run(RAYTIDE, "sandbox", "down", "--state-dir", STATE, deadline_s=60, is_shown=False)
    up = run(RAYTIDE, "sandbox", "up", "--api", "kubernetes", "--audit", "--state-dir", STATE, deadline_s=180)
    if up.returncode:
        raise E2eError("the control plane did not start")
    try:
        record = json.loads((STATE / "sandbox.json").read_text())
        ignored = [*ON_KIND_ALONE, "--ignore", "test_2d_why.py"]  # no image has to be pulled there
        code = run_suite(STATE / "kubeconfig", record["audit_log"], [*wanted, *ignored])
    finally:
        if not is_kept:
            run(RAYTIDE, "sandbox", "down", "--state-dir", STATE, deadline_s=120)
    left = [] if is_kept else what_is_left(before)
    if left:
        print("e2e: these processes are left:", *left, sep="\n  ")
    return code or (1 if left else 0)


def what_is_left(before: set[str]) -> list[str]:
    """Command lines of processes that belong to our sandbox, once they had time to end."""
    deadline = time.monotonic() + ENDS_WITHIN_S
    while (
        found := [line for line in node_traces.processes(str(STATE)) if line not in before]
    ) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


# --- a real node here ----------------------------------------------------------------------------------------------------


def on_node(wanted: list[str], *, is_kept: bool) -> int:
    """Run the suite on containerd and a kubelet; 0 with the reason where they cannot run, if something may be missing."""
    try:
        kept = (node_images.ray(RAY_IMAGE),)
        settings = node.prepare((raytide_archive(),), kept_images=kept, is_tethered=not is_kept)
    except node.NodeMissingError as error:
        print(f"e2e on a node: not run: {error}")
        return 1 if os.environ.get("RAYTIDE_ALL_RUN") else 0
    except (node.NodeError, node_images.ImageError) as error:
        raise E2eError(str(error)) from error
    kubelet = node.Node(settings)
    try:
        before = machine_before(settings)
        running = kubelet.start()
        print(f"e2e on a node: {running.seconds}", flush=True)
        if is_kept:
            reach = " ".join(running.command("kubectl", "--kubeconfig", running.kubeconfig))
            print(f"the node runs until `make e2e DOWN=1`; reach it with {reach}", flush=True)
        try:
            options = [*wanted, *ON_KIND_ALONE]
            code = run_suite(running.kubeconfig, str(running.audit_log), options, running.command)
        finally:
            if not is_kept:
                kubelet.end()
    except node.NodeError as error:
        raise E2eError(str(error)) from error
    return code or (1 if not is_kept and are_traces_left(before, settings) else 0)


def machine_before(settings: NodeSettings) -> node_traces.Snapshot:
    """The machine without the new node and without what an earlier one left: its removal is not a change by the new one."""
    node.clear(settings)
    return node_traces.snapshot(str(settings.state), settings.packages)


def are_traces_left(before: node_traces.Snapshot, settings: NodeSettings) -> bool:
    """Whether the machine is not as it was before the node; prints the differences."""
    after = node_traces.snapshot(str(settings.state), settings.packages)
    if others := node_traces.other_changes(before, after):
        print("e2e: other programs changed this machine meanwhile:", *others, sep="\n  ")
    left = node_traces.traces(before, after)
    if left:
        print("e2e: the node left traces on this machine:", *left, sep="\n  ")
    return bool(left)


def raytide_archive() -> Path:
    """The image of the Dockerfile as `make image` left it."""
    archive = CACHE / "image" / "raytide.tar"
    if not archive.exists():
        raise E2eError(f"there is no image at {archive}: run `make image`")
    return archive


# --- kind ----------------------------------------------------------------------------------------------------------------


def on_kind(wanted: list[str], *, is_kept: bool) -> int:
    """Run the suite on a kind cluster of three nodes; 0 with the reason where there can be none, if something may be missing."""
    why = kind_docker.why_not_installed()
    archive = raytide_archive()
    try:
        if not why:
            return on_installed_docker(archive, wanted, is_kept=is_kept)
        return on_own_docker(archive, wanted, is_kept=is_kept)
    except node.NodeMissingError as error:
        print(f"e2e on kind: not run: {why}, and this machine allows no Docker daemon of its own: {error}")
        return 1 if os.environ.get("RAYTIDE_ALL_RUN") else 0
    except (node.NodeError, node_images.ImageError, KindError, ToolMissingError) as error:
        raise E2eError(str(error)) from error


def on_installed_docker(archive: Path, wanted: list[str], *, is_kept: bool) -> int:
    """Run it with the machine's Docker and kind; nodes pull Ray's image if Docker does not have it."""
    cluster = KindCluster(kind_docker.installed(), CACHE / "e2e-kind", find_tool("kubectl"))
    try:
        return run_on_cluster(cluster, archive, wanted, [RAY_IMAGE])
    finally:
        if not is_kept:
            cluster.delete()


def on_own_docker(archive: Path, wanted: list[str], *, is_kept: bool) -> int:
    """Run it in namespaces of this machine, with a Docker daemon of unpacked packages and a node image that is made here."""
    own = kind_docker.prepare_own((node_images.ray(RAY_IMAGE),), is_tethered=not is_kept)
    before = machine_before(own.settings)
    daemon = node.Node(own.settings)
    running = daemon.start()
    try:
        print(f"e2e on kind: {running.seconds}", flush=True)
        docker = own.reached_by(running)
        print(f"e2e on kind: node image {docker.load(own.image)}", flush=True)
        cluster = KindCluster(docker, own.settings.state / "cluster", own.settings.kubectl)
        if is_kept:
            reach = " ".join(running.command("kubectl", "--kubeconfig", cluster.kubeconfig))
            print(f"the cluster runs until `make e2e DOWN=1`; reach it with {reach}", flush=True)
        code = run_on_cluster(cluster, archive, wanted, [], running.command)
    finally:
        if not is_kept:
            daemon.end()
    return code or (1 if not is_kept and are_traces_left(before, own.settings) else 0)


def run_on_cluster(
    cluster: KindCluster,
    archive: Path,
    wanted: list[str],
    images: list[str],
    inside: Callable[..., list[str]] = lambda *words: [*words],
) -> int:
    """Create it, load the archive and those of the images that Docker has, and run the suite; its exit code."""
    try:
        print(f"e2e on kind: {cluster.create()}; {cluster.load(archive)}", flush=True)
        for image in images:
            cluster.load_from_docker(image)
        cluster.tag(f"docker.io/library/{IMAGE}", f"docker.io/library/{NEXT_IMAGE}")
        code = run_suite(
            cluster.kubeconfig, str(cluster.audit_log), wanted, inside, {"RAYTIDE_E2E_NEXT_IMAGE": NEXT_IMAGE}
        )
    except BaseException:
        cluster.export_logs()
        raise
    if code:
        cluster.export_logs()
    return code


def main() -> int:
    """The exit code."""
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
    except E2eError as error:
        print(f"e2e: {error}")
        return 1
    print(f"e2e: {time.monotonic() - started:.0f} s")
    return code


def run_level_twice(chosen: argparse.Namespace, wanted: list[str]) -> int:
    """Exit code of the suite; if a test fails, of its second run, unless the cluster is to be kept."""
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
    """Exit code of the suite on a cluster of the chosen kind."""
    if chosen.kubeconfig:
        return run_suite(chosen.kubeconfig, os.environ.get("RAYTIDE_E2E_AUDIT_LOG", ""), wanted)
    level = on_node if chosen.node else on_kind if chosen.kind else on_sandbox
    return level(wanted, is_kept=chosen.keep)


def report_second_run(first: str) -> None:
    """Name what failed at first, at the end of the level and of the run, where all such tests are listed."""
    title = "=== passed only when run again, to be mended: the end-to-end suite"
    print(title)
    if path := os.environ.get("RAYTIDE_RERUN_LOG"):
        with Path(path).open("a", encoding="utf-8") as log:
            log.write(f"{title}\n--- first run:\n{first}\n")


if __name__ == "__main__":
    sys.exit(main())
