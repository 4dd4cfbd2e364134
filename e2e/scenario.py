"""Queries that several tests of the suite use.

Pods of a Ray cluster, a word with its head, the operator's pods and rights: each is one question to the cluster, answered
as it is now, or waited for with a deadline. Used by the test files, which are read in the order of their numbers.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator

from cluster import PATIENCE, CommandError, Json, eventually, get, is_ready, kubectl, listed, names
from installation import ROOT, Installation

WHY_PAGE = ROOT / "docs" / "why.md"
EXPLAINED_WITHIN_S = 10
"""Bar of SC:S21, from the moment at which the cause is there."""

STAYS = {"serviceaccounts/default", "configmaps/kube-root-ca.crt"}
"""What Kubernetes puts into every namespace."""


def of_cluster(cluster: str, node_type: str = "") -> str:
    """Selects the pods of a Ray cluster: all, the `head` or the `worker`s."""
    return f"ray.io/cluster={cluster}" + (f",ray.io/node-type={node_type}" if node_type else "")


def workers(installation: Installation, cluster: str) -> list[Json]:
    """Its worker pods."""
    return listed("pods", installation.ray_namespace, of_cluster(cluster, "worker"))


def wait_for_workers(
    installation: Installation, cluster: str, count: int, deadline_s: float, *, without: str = ""
) -> list[Json]:
    """So many workers, all of them ready, and not the one named."""

    def check() -> tuple[list[Json], str]:
        pods = workers(installation, cluster)
        ready = [pod for pod in pods if is_ready(pod)]
        is_so = len(pods) == len(ready) == count and without not in names(pods)
        return pods if is_so else [], f"{len(ready)} of {len(pods)} workers ready: {sorted(names(pods))}"

    return eventually(check, f"{count} ready workers", deadline_s)


def head_of(installation: Installation, cluster: str) -> Json:
    """Its one head pod."""
    (head,) = listed("pods", installation.ray_namespace, of_cluster(cluster, "head"))
    return head


def exec_args(installation: Installation, cluster: str, container: str) -> list[str]:
    """How kubectl begins what it runs in the head pod."""
    name = head_of(installation, cluster)["metadata"]["name"]
    return ["exec", "-n", installation.ray_namespace, name, "-c", container, "--"]


def in_head(
    installation: Installation, cluster: str, *args: str, container: str = "ray-head", deadline_s: float = 60.0
) -> str:
    """The output of a program in the head pod."""
    return kubectl(*exec_args(installation, cluster, container), *args, deadline_s=deadline_s)


def operator_pods(installation: Installation) -> list[Json]:
    """All pods of the operator; those of hooks have another name label."""
    return listed("pods", installation.namespace, f"{installation.of_release},app.kubernetes.io/name=raytide")


def why(installation: Installation, cluster: str) -> tuple[int, Json]:
    """Exit code and answer of `raytide why -o json`, with the rights of the suite."""
    asked = ("why", f"raycluster/{cluster}", "-n", installation.ray_namespace, "-o", "json")
    command = [sys.executable, "-m", "raytide", *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30 * PATIENCE, check=False)
    if done.returncode not in (0, 3, 4):
        raise CommandError(done.stderr)
    answer: Json = json.loads(done.stdout)
    return done.returncode, answer


def is_documented(installation: Installation, blocker: Json) -> bool:
    """Whether docs/why.md shows this holder and this fix in the output of a real run."""
    said = f"    held by: {blocker['holder']}\n    fix:     {blocker['cure']}\n".replace(
        installation.ray_namespace, "team-a"
    )
    return re.sub(r"-(head|worker)-[a-z0-9]{5}\b", r"-\1-x7k2p", said) in WHY_PAGE.read_text()


def condition_of(installation: Installation, cluster: str, kind: str) -> Json:
    """That condition of a RayCluster; empty if it has none."""
    conditions = get("raycluster", cluster, installation.ray_namespace).get("status", {}).get("conditions", [])
    found: Json = next((each for each in conditions if each["type"] == kind), {})
    return found


def events_of(installation: Installation, cluster: str, reason: str) -> list[str]:
    """Messages of its events with that reason."""
    chosen = f"involvedObject.kind=RayCluster,involvedObject.name={cluster},reason={reason}"
    found = json.loads(
        kubectl("get", "events", "-n", installation.ray_namespace, "--field-selector", chosen, "-o", "json")
    )
    return [each["message"] for each in found["items"]]


def may(installation: Installation, verb: str, resource: str, *args: str, user: str = "") -> bool:
    """Whether that user, or else the operator's service account, may do this, as the API server sees it."""
    resource, _, subresource = resource.partition("/")
    args += (f"--subresource={subresource}",)
    try:
        answer = kubectl("auth", "can-i", verb, resource, "--as", user or installation.user, *args)
    except CommandError as error:
        if "no\n" not in str(error):
            raise
        return False
    return answer.startswith("yes")


def everything(namespace: str, *kinds: str) -> Iterator[str]:
    """Kind and name of all objects that a client has created there."""
    for kind in kinds:
        yield from (word for name in names(listed(kind, namespace)) if (word := f"{kind}/{name}") not in STAYS)
