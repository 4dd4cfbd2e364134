"""Accelerator type of a worker group's nodes, derived from the RayCluster spec.

Ray adds a resource `accelerator_type:<kind>` to each running node and tasks request it, so a group without live nodes
would look infeasible for them. The type is read from the group's labels, or derived from the node labels that its template
requires and from the accelerator resource it requests; names are those of `ray.util.accelerators`. What the spec does
not tell is learnt from a live node (node_types.py); no label or resource of Kubernetes has Ray's name of an Intel or Ascend
accelerator. Pure (B-12).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from raytide.autoscaler.state.node_resources import (
    GPU,
    NEURON_CORES,
    TPU,
    TPU_ACCELERATOR,
    TPU_GENERATION,
    mapping,
    required_labels,
)

ACCELERATOR_LABEL: Final = "ray.io/accelerator-type"
RESOURCE: Final = "accelerator_type:"
SELECTORS: Final = (
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "nvidia.com/gpu.product",
)
"""Labels of Kubernetes nodes that name the GPU model."""
AMD_DEVICE_IDS: Final = ("amd.com/gpu.device-id", "beta.amd.com/gpu.device-id")
"""Labels of AMD's node labeller with the number by which Ray recognizes an AMD GPU."""
NVIDIA: Final = frozenset(
    (
        *("K80", "P100", "P4", "T4", "V100", "L4", "L40S", "A10G", "A10"),
        *("A100", "H100", "H200", "H20", "B200", "B300", "GB200", "GB300", "RTX-PRO-6000"),
    )
)
AMD_BY_DEVICE_ID: Final = {
    "66a1": "AMD-Instinct-MI50",
    "738c": "AMD-Instinct-MI100",
    "7408": "AMD-Instinct-MI250X",
    "740c": "AMD-Instinct-MI250X-MI250",
    "740f": "AMD-Instinct-MI210",
    "74a0": "AMD-Instinct-MI300A",
    "74a1": "AMD-Instinct-MI300X-OAM",
    "74a2": "AMD-Instinct-MI308X-OAM",
    "74a5": "AMD-Instinct-MI325X-OAM",
    "74a9": "AMD-Instinct-MI300X-HF",
    "75a0": "AMD-Instinct-MI350X-OAM",
    "75a3": "AMD-Instinct-MI355X-OAM",
    "6798": "AMD-Radeon-R9-200-HD-7900",
    "6799": "AMD-Radeon-HD-7900",
    "679a": "AMD-Radeon-HD-7900",
    "679b": "AMD-Radeon-HD-7900",
}
NEURON: Final = "aws-neuron-core"
_MODEL: Final = re.compile(rf"(?<![A-Z0-9])(?:{'|'.join(sorted(NVIDIA))})(?![A-Z0-9])")


def accelerator_of(group: Mapping[str, Any], amounts: Mapping[str, int]) -> str:
    """Ray's name of the accelerator type; empty if the spec does not determine it or the node has no accelerator."""
    label = mapping(group.get("labels")).get(ACCELERATOR_LABEL)
    if isinstance(label, str) and label:
        return label
    selector = required_labels(mapping(mapping(group.get("template")).get("spec")))
    if amounts.get(TPU):
        generation = TPU_GENERATION.get(str(selector.get(TPU_ACCELERATOR)))
        return f"TPU-{generation.upper()}" if generation else ""
    if amounts.get(NEURON_CORES):
        return NEURON
    return _gpu_model(selector) if amounts.get(GPU) else ""


def _gpu_model(selector: Mapping[str, Any]) -> str:
    models = (_MODEL.search(str(selector.get(key, "")).upper()) for key in SELECTORS)
    nvidia = next((model[0] for model in models if model), "")
    amd = (AMD_BY_DEVICE_ID.get(str(selector.get(key)).lower(), "") for key in AMD_DEVICE_IDS)
    return nvidia or next(filter(None, amd), "")
