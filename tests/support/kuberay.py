"""KubeRay's manager as a process, to switch operators back and forth and to measure both on one control plane.

`KUBERAY=` is the path of a program that `go build` made of its source; nothing of it is in this repository.
"""

from pathlib import Path
from typing import Any, Final

from support.operator_process import OperatorProcess

OTHER_KINDS: Final = {"rayjobs": "RayJob", "rayservices": "RayService", "raycronjobs": "RayCronJob"}
"""The manager does not start without them."""


def crds_without_schema() -> list[dict[str, Any]]:
    """CRDs of the kinds that are KubeRay's alone."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": anything, "subresources": {"status": {}}}
    crds = []
    for plural, kind in OTHER_KINDS.items():
        names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
        spec = {"group": "ray.io", "scope": "Namespaced", "names": names, "versions": [version]}
        header = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        crds.append({**header, "metadata": {"name": f"{plural}.ray.io"}, "spec": spec})
    return crds


def manager_command(program: str | Path, kubeconfig: Path, metrics: str, health: str) -> list[str]:
    """How to start it on a kubeconfig, as the only replica; `metrics` and `health` are `host:port`, or 0 for no metrics."""
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--metrics-addr={metrics}",
        f"--health-probe-bind-address={health}",
        "--enable-leader-election=false",
    ]


class KubeRayProcess(OperatorProcess):
    """One manager; starts when entered, ends when left."""

    def __init__(self, program: Path, kubeconfig: Path, log: Path, *flags: str) -> None:
        super().__init__(kubeconfig, log, *flags)
        self._program = program

    def _command(self) -> list[str]:
        return [*manager_command(self._program, self._kubeconfig, "0", self.health), *self._flags]
