"""Accelerator type of a worker group's nodes, derived from the RayCluster spec.

Ray adds a resource `accelerator_type:<kind>` to each running node and tasks request it, so a group without live nodes
would look infeasible for them. The type is read from the group's labels, or derived from the node selector of its
template and from the accelerator resource it requests; names are those of `ray.util.accelerators`. What the spec does
not tell is learnt from a live node (node_types.py). Pure.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from raytide.autoscaler.state.node_resources import GPU, NEURON_CORES, TPU, TPU_ACCELERATOR, TPU_GENERATION, mapping

ACCELERATOR_LABEL: Final = "ray.io/accelerator-type"
RESOURCE: Final = "accelerator_type:"
SELECTORS: Final = (
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "nvidia.com/gpu.product",
)
"""Labels of Kubernetes nodes that name the GPU model."""
NVIDIA: Final = frozenset(
    {
        *(
            "K80",
            "P100",
            "P4",
            "T4",
            "V100",
            "L4",
            "L40S",
            "A10G",
            "A10",
            "A100",
            "H100",
            "H200",
            "H20",
            "B200",
            "B300",
        ),
    }
)
NEURON: Final = "aws-neuron-core"
_WORDS: Final = re.compile(r"[A-Z0-9]+")


def accelerator_of(group: Mapping[str, Any], amounts: Mapping[str, int]) -> str:
    """Ray's name of the accelerator type; empty if the spec does not determine it or the node has no accelerator."""
    label = mapping(group.get("labels")).get(ACCELERATOR_LABEL)
    if isinstance(label, str) and label:
        return label
    selector = mapping(mapping(mapping(group.get("template")).get("spec")).get("nodeSelector"))
    if amounts.get(TPU):
        generation = TPU_GENERATION.get(str(selector.get(TPU_ACCELERATOR)))
        return f"TPU-{generation.upper()}" if generation else ""
    if amounts.get(NEURON_CORES):
        return NEURON
    if amounts.get(GPU):
        words = (word for key in SELECTORS for word in _WORDS.findall(str(selector.get(key, "")).upper()))
        return next((word for word in words if word in NVIDIA), "")
    return ""
