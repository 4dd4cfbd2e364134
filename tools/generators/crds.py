"""Write the CRDs, or check that they are current.

`python tools/generators/crds.py` writes one file per kind to `crds/`, to which package and chart link; with `--check` it fails if a
file differs. It also fails if a CRD is too large for `kubectl apply`, which stores objects as JSON in an annotation of at most
256 KiB.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

import raycluster_descriptions
import trainingjob_descriptions
from crd_parts import described
from kubernetes_types import KubernetesTypes
from raycluster_schema import RayClusterSchema
from trainingjob_schema import TrainingJobSchema

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "crds"
MAX_BYTES = 256 * 1024
LINE_LENGTH = 1000

Columns = tuple[tuple[str, str, str, int], ...]
RAYCLUSTER_COLUMNS: Columns = (
    ("desired workers", "integer", ".status.desiredWorkerReplicas", 0),
    ("available workers", "integer", ".status.availableWorkerReplicas", 0),
    ("cpus", "string", ".status.desiredCPU", 0),
    ("memory", "string", ".status.desiredMemory", 0),
    ("gpus", "string", ".status.desiredGPU", 0),
    ("tpus", "string", ".status.desiredTPU", 1),
    ("status", "string", ".status.state", 0),
    ("age", "date", ".metadata.creationTimestamp", 0),
    ("head pod IP", "string", ".status.head.podIP", 1),
    ("head service IP", "string", ".status.head.serviceIP", 1),
    # Last, so that KubeRay's columns have the same positions for scripts.
    ("ready workers", "integer", ".status.readyWorkerReplicas", 0),
    ("reason", "string", '.status.conditions[?(@.type=="WorkersMissing")].reason', 0),
)
TRAININGJOB_COLUMNS: Columns = (
    ("Min", "integer", ".status.trainer.min", 0),
    ("Max", "integer", ".status.trainer.max", 0),
    ("Current", "integer", ".status.trainer.replicas", 0),
    ("Score", "number", ".status.trainer.fulfillment", 0),
    ("Phase", "string", ".status.phase", 0),
    ("Waiting", "string", ".status.waiting", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Ready", "integer", ".status.trainer.ready", 1),
)
DEPRECATION = "ray.io/v1alpha1 RayCluster is deprecated: no new fields, gone from KubeRay 1.9 on; use ray.io/v1"


class _Compact(yaml.CSafeDumper):
    """YAML without anchors, with short mappings on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write all schemas in full, without anchors."""
        return data is not None

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:  # noqa: FBT001 - PyYAML's
        """Write short mappings on one line."""
        is_short = len(json.dumps(mapping)) <= LINE_LENGTH
        return super().represent_mapping(tag, mapping, flow_style=flow_style or is_short)


def build_version(name: str, schema: dict[str, Any], columns: Columns, **more: Any) -> dict[str, Any]:
    """One entry of `spec.versions`."""
    shown = []
    for title, kind, path, priority in columns:
        column = {"name": title, "type": kind, "jsonPath": path}
        shown.append({**column, "priority": priority} if priority else column)
    return {
        "name": name,
        "served": True,
        "storage": False,
        "additionalPrinterColumns": shown,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        **more,
    }


def build_crd(group: str, kind: str, *versions: dict[str, Any], **names: Any) -> dict[str, Any]:
    """A CustomResourceDefinition of a namespaced kind; `names` are added to `spec.names`."""
    singular = kind.lower()
    all_names = {"kind": kind, "listKind": f"{kind}List", "plural": f"{singular}s", "singular": singular}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.{group}"},
        "spec": {
            "group": group,
            "names": {**all_names, **names, "categories": ["all"]},
            "scope": "Namespaced",
            "versions": list(versions),
        },
    }


def build_raycluster_crd() -> dict[str, Any]:
    """The CustomResourceDefinition of RayCluster."""
    schema = RayClusterSchema(KubernetesTypes())
    v1 = described(schema.v1(), raycluster_descriptions.WORDS)
    old = {"deprecated": True, "deprecationWarning": DEPRECATION}
    return build_crd(
        "ray.io",
        "RayCluster",
        build_version("v1", v1, RAYCLUSTER_COLUMNS, storage=True),
        build_version("v1alpha1", schema.v1alpha1(), RAYCLUSTER_COLUMNS, **old),
    )


def build_trainingjob_crd() -> dict[str, Any]:
    """The CustomResourceDefinition of TrainingJob."""
    schema = described(TrainingJobSchema(KubernetesTypes()).v1(), trainingjob_descriptions.WORDS)
    scale = {
        "specReplicasPath": ".spec.trainer.replicas",
        "statusReplicasPath": ".status.trainer.replicas",
        "labelSelectorPath": ".status.selector",
    }
    subresources = {"status": {}, "scale": scale}
    version = build_version("v1", schema, TRAININGJOB_COLUMNS, storage=True, subresources=subresources)
    return build_crd("paddlepaddle.org", "TrainingJob", version, shortNames=["tj"])


def build_all() -> dict[str, dict[str, Any]]:
    """All CRDs by the names of their files."""
    return {
        f"{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml": crd
        for crd in (build_raycluster_crd(), build_trainingjob_crd())
    }


def written(crd: dict[str, Any]) -> str:
    """Text of the file of a CRD."""
    head = "# Made by `make generate` (tools/generators/crds.py) from Kubernetes' published types; do not edit.\n"
    return head + yaml.dump(crd, Dumper=_Compact, sort_keys=False, default_flow_style=False, width=1_000_000)


def faults_of_size(name: str, crd: dict[str, Any]) -> list[str]:
    """Errors if the CRD is too large for `kubectl apply`."""
    sizes = {"as YAML": len(written(crd).encode()), "as JSON": len(json.dumps(crd, separators=(",", ":")).encode())}
    return [f"{name} is {size} bytes {form}, above {MAX_BYTES}" for form, size in sizes.items() if size >= MAX_BYTES]


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` compare them; returns the exit code."""
    faults = []
    for name, crd in build_all().items():
        text = written(crd)
        faults += faults_of_size(name, crd)
        path = FOLDER / name
        if "--check" not in arguments:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            faults.append(f"{path.relative_to(ROOT)} is not current; run `make generate`")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
