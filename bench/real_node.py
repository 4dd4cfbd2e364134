"""Times and memory on a real kubelet, from `helm install` to the deletion of idle workers: NODE.

Starts the node of `make e2e ON=node` (root, Debian) with the image of `make image` and real Ray, and installs Raytide with helm. With
`KUBERAY=<path of a manager built from KubeRay's source>`, KubeRay and Ray's own autoscaler then manage the same cluster on the same
node; the manager is a process on the machine, without the limits of a pod. A round submits four tasks to a cluster without workers,
and measures the time until the first worker runs, until the first task runs, and from the end of the tasks until all workers are
gone, without the idle time-out. At the end Raytide has 100 RayClusters whose heads only sleep. Bars: the memory limits of both pods,
and at most 120 % of the times of KubeRay. BENCH_ROUNDS and BENCH_CLUSTERS make it smaller.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools" / name) for name in ("builders", "node", "kind", "checks")]

import e2e  # noqa: E402 - the path first
import node  # noqa: E402
import node_images  # noqa: E402
from kube_tools import find_tool  # noqa: E402
from support.kuberay import crds_without_schema, manager_command  # noqa: E402

from harness import Met, result, run, spread  # noqa: E402

Json = dict[str, Any]

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "4"))
CLUSTERS = int(os.environ.get("BENCH_CLUSTERS", "100"))
IDLE_S = 10
TASKS = 4
WITHIN_S = 300
POD_S = 10
"""Time limit per pod for the kubelet."""
POLL_S = 0.1
RELEASE, HOME, PLACE = "raytide", "raytide-system", "bench"
DRIVER = f"""
import time, ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")

@ray.remote(num_cpus=1)
def work():
    began = time.time()
    time.sleep(3)
    return began

print("asked", time.time(), flush=True)
print("began", min(ray.get([work.remote() for _ in range({TASKS})])), time.time(), flush=True)
"""

MEMORY = """
import pathlib
new, old = pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/memory")
is_new = (new / "memory.current").exists()
used = new / "memory.current" if is_new else old / "memory.usage_in_bytes"
stat = dict(line.split() for line in open((new if is_new else old) / "memory.stat"))
print(int(used.read_text()) - int(stat["inactive_file" if is_new else "total_inactive_file"]))
"""
"""Program that prints the working set of its container in bytes: its memory without inactive file cache."""


@dataclass
class Figures:
    """Results of one operator, seconds of each round."""

    worker_s: list[float] = field(default_factory=list)
    """From the submission of the tasks until kubectl shows a running worker."""
    task_s: list[float] = field(default_factory=list)
    """From the submission until the first task runs."""
    gone_s: list[float] = field(default_factory=list)
    """From the end of the tasks until no worker is left, without the idle time-out."""


class Cluster:
    """The cluster of the node, with kubectl and helm."""

    def __init__(self, running: node.RunningNode) -> None:
        self.kubeconfig = running.kubeconfig
        self._running = running
        self._environ = {**os.environ, "KUBECONFIG": str(running.kubeconfig)}

    def run(self, program: str, *words: str, stdin: str | None = None) -> str:
        """Run a program and return its output; ends the bench if it fails."""
        command = self._running.command(find_tool(program), *words)
        done = subprocess.run(
            command, input=stdin, env=self._environ, text=True, timeout=WITHIN_S, check=False, capture_output=True
        )
        if done.returncode:
            raise SystemExit(f"{program} {' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout

    def pods(self, selector: str) -> list[Json]:
        """Pods in the namespace of the bench."""
        found = json.loads(self.run("kubectl", "get", "pods", "-n", PLACE, "-l", selector, "-o", "json"))
        items: list[Json] = found["items"]
        return items

    def popen(self, program: Path, *words: str, **options: Any) -> "subprocess.Popen[str]":
        """Start a program in the network of the node."""
        return subprocess.Popen(self._running.command(program, *words), env=self._environ, text=True, **options)


def autoscaled() -> str:
    """The sample with autoscaling, with a short idle time-out, as JSON."""
    made = yaml.safe_load((ROOT / "samples" / "raycluster-autoscaler.yaml").read_text())
    made["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] = IDLE_S
    made["spec"]["workerGroupSpecs"][0]["maxReplicas"] = TASKS
    return json.dumps(made)


def asleep(number: int) -> Json:
    """A RayCluster of one head that only sleeps, in the image of the operator."""
    container = {"name": "ray-head", "image": e2e.IMAGE, "command": ["python", "-c", "import signal; signal.pause()"]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    header = {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
    metadata = {"name": f"asleep-{number}", "annotations": {"ray.io/overwrite-container-cmd": "true"}}
    return {**header, "metadata": metadata, "spec": {"headGroupSpec": {"template": template}}}


def until(what: str, is_so: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Wait for a state; ends the bench if it is not reached in time."""
    end = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"not within {within_s:g} s: {what}")
        time.sleep(POLL_S)


def is_running(pod: Json) -> bool:
    """Whether all containers of the pod run."""
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return bool(statuses) and all("running" in each["state"] for each in statuses)


def start_autoscaled(here: Cluster) -> str:
    """Create the cluster without workers, and wait until its head is ready; returns the name of the head pod."""
    here.run("kubectl", "apply", "-n", PLACE, "-f", "-", stdin=autoscaled())
    ready = ("--for=condition=HeadPodReady", "raycluster/autoscaled", f"--timeout={WITHIN_S}s")
    here.run("kubectl", "wait", "-n", PLACE, *ready)
    (head,) = here.pods("ray.io/node-type=head")
    name: str = head["metadata"]["name"]
    return name


def measure_round(here: Cluster, head: str, figures: Figures) -> None:
    """Submit the tasks and wait until the workers are gone; add the times to `figures`."""
    words = ("exec", "-n", PLACE, head, "-c", "ray-head", "--", "python", "-c", DRIVER)
    with here.popen(find_tool("kubectl"), *words, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        word, asked = driver.stdout.readline().split()
        assert word == "asked", word
        until("a worker runs", lambda: any(map(is_running, here.pods("ray.io/node-type=worker"))))
        worker_s = time.time() - float(asked)
        word, began, ended = driver.stdout.readline().split()
        assert word == "began", word
    until("all workers are gone", lambda: not here.pods("ray.io/node-type=worker"))
    figures.worker_s.append(worker_s)
    figures.task_s.append(float(began) - float(asked))
    figures.gone_s.append(time.time() - float(ended) - IDLE_S)


def measure(here: Cluster, name: str) -> Figures:
    """Measure all rounds of one operator, the first as a warm-up; leaves no objects in the namespace."""
    figures, head = Figures(), start_autoscaled(here)
    for number in range(ROUNDS):
        of_round = Figures()
        measure_round(here, head, of_round)
        print(
            f"round {number}, {name}: a worker runs after {of_round.worker_s[0]:.1f} s, a task after {of_round.task_s[0]:.1f} s; "
            f"workers gone {of_round.gone_s[0]:.1f} s after the idle time-out",
            flush=True,
        )
        if number or ROUNDS == 1:
            figures.worker_s += of_round.worker_s
            figures.task_s += of_round.task_s
            figures.gone_s += of_round.gone_s
    here.run("kubectl", "delete", "raycluster", "autoscaled", "-n", PLACE)
    until("its pods are gone", lambda: not here.pods(""))
    return figures


def install(here: Cluster) -> None:
    """Install the chart as in the README; prints the times until it is ready, and until a first cluster is."""
    repository, _, tag = e2e.IMAGE.rpartition(":")
    values = ("--set", f"image.repository={repository}", "--set-string", f"image.tag={tag}")
    began = time.monotonic()
    words = ("install", RELEASE, str(ROOT / "helm" / "raytide"), "-n", HOME, "--create-namespace", "--wait")
    here.run("helm", *words, *values)
    installed_s = time.monotonic() - began
    here.run("kubectl", "apply", "-n", PLACE, "-f", str(ROOT / "samples" / "raycluster.yaml"))
    ready = ("--for=condition=RayClusterProvisioned", "raycluster/sample", f"--timeout={WITHIN_S}s")
    here.run("kubectl", "wait", "-n", PLACE, *ready)
    print(
        f"helm install: ready after {installed_s:.1f} s, a first RayCluster of three pods after "
        f"{time.monotonic() - began:.1f} s",
        flush=True,
    )
    here.run("kubectl", "delete", "raycluster", "sample", "-n", PLACE)
    until("its pods are gone", lambda: not here.pods(""))


@contextlib.contextmanager
def kuberay(here: Cluster, program: Path) -> Iterator[None]:
    """The manager of KubeRay, as a process in the network of the node, until the block ends."""
    for crd in crds_without_schema():
        here.run("kubectl", "apply", "--server-side", "-f", "-", stdin=json.dumps(crd))
    log = here.kubeconfig.with_name("kuberay.log")
    command = manager_command(program, here.kubeconfig, "0", "127.0.0.1:18082")
    with (
        log.open("w") as written,
        here.popen(Path(command[0]), *command[1:], stdout=written, stderr=written) as manager,
    ):
        try:
            yield
        finally:
            manager.send_signal(signal.SIGTERM)


def memory_mib(here: Cluster, namespace: str, pod: str, container: str) -> float:
    """Working set of a container in MiB."""
    answer = here.run("kubectl", "exec", "-n", namespace, pod, "-c", container, "--", "python", "-c", MEMORY)
    return int(answer) / 2**20


def measure_memory(here: Cluster) -> tuple[float, float]:
    """MiB of the operator with all clusters, and of the autoscaler of a cluster with real Ray."""
    head = start_autoscaled(here)
    many = {"apiVersion": "v1", "kind": "List", "items": [*map(asleep, range(CLUSTERS))]}
    here.run("kubectl", "apply", "-n", PLACE, "-f", "-", stdin=json.dumps(many))
    heads = "ray.io/node-type=head"
    until(
        f"{CLUSTERS} heads run",
        lambda: sum(map(is_running, here.pods(heads))) == CLUSTERS + 1,
        within_s=WITHIN_S + POD_S * CLUSTERS,
    )
    found = json.loads(here.run("kubectl", "get", "pods", "-n", HOME, "-o", "json"))
    (operator,) = [pod["metadata"]["name"] for pod in found["items"]]
    measured = (memory_mib(here, HOME, operator, "operator"), memory_mib(here, PLACE, head, "autoscaler"))
    here.run("kubectl", "delete", "rayclusters", "--all", "-n", PLACE)
    until("their pods are gone", lambda: not here.pods(""))
    return measured


def on_a_node() -> Met:
    """Measure both operators on a node."""
    program = Path(os.environ["KUBERAY"]).resolve() if os.environ.get("KUBERAY") else None
    settings = node.prepare((e2e.raytide_archive(),), kept_images=(node_images.ray(e2e.RAY_IMAGE),))
    figures: dict[str, Figures] = {}
    with node.Node(settings) as running:
        here = Cluster(running)
        here.run("kubectl", "create", "namespace", PLACE)
        install(here)
        figures["Raytide"] = measure(here, "Raytide")
        operator_mib, autoscaler_mib = measure_memory(here)
        if program is not None:
            here.run("helm", "uninstall", RELEASE, "-n", HOME, "--wait")
            with kuberay(here, program):
                figures["KubeRay"] = measure(here, "KubeRay")
    for name, of in figures.items():
        print(
            f"{name}: a worker runs {spread(of.worker_s)} s after tasks wait, a task {spread(of.task_s)} s; idle workers are gone "
            f"{spread(of.gone_s)} s after the time-out"
        )
    met = [
        result("NODE", operator_mib, f"MiB of the operator with {CLUSTERS + 1} RayClusters", 512),
        result("NODE", autoscaler_mib, "MiB of an autoscaler", 512),
    ]
    if program is not None:
        ours, theirs = figures["Raytide"], figures["KubeRay"]
        for what in ("worker_s", "task_s", "gone_s"):
            share = statistics.mean(getattr(ours, what)) / statistics.mean(getattr(theirs, what))
            met.append(result("NODE", 100 * share, f"% of KubeRay's {what}", 120))
    return met


FIGURES = {"NODE": on_a_node}

if __name__ == "__main__":
    sys.exit(run(FIGURES))
