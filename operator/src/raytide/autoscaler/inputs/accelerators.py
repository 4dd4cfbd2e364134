"""Which kind of accelerator has a node of a worker group, as far as the spec tells?

Ray gives each node a resource `accelerator_type:<kind>` once it runs; tasks ask for it, and a group without nodes would
look impossible for them. The kind is in the group's labels, in the node selector of its template, in the spelling of the
cloud, or follows from the resource that is asked for; names are those of Ray's table (`ray.util.accelerators`). What nothing
tells is learnt from a live node (node_types.py). Pure.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from raytide.autoscaler.inputs.node_resources import GPU, NEURON_CORES, TPU, TPU_ACCELERATOR, TPU_GENERATION, mapping

ACCELERATOR_LABEL: Final = "ray.io/accelerator-type"
RESOURCE: Final = "accelerator_type:"
SELECTORS: Final = (
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "nvidia.com/gpu.product",
)
"""Labels of Kubernetes nodes that name their GPU."""
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
    """The kind in Ray's words; empty where nothing tells it, or the node has no accelerator."""
    written = mapping(group.get("labels")).get(ACCELERATOR_LABEL)
    if isinstance(written, str) and written:
        return written
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
