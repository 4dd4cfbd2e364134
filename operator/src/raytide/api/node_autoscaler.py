"""Node autoscalers: the setting whether there is one, and the source of the events that show it.

Read by the autoscaler of RayClusters, for its pods, and by fair sharing, for gangs that wait for nodes.
"""

from enum import StrEnum


class Presence(StrEnum):
    """Whether a node autoscaler adds nodes to this cluster (`--node-autoscaler`, RAYTIDE_AUTOSCALER_NODE_AUTOSCALER)."""

    AUTO = "auto"
    """Detected from events."""
    PRESENT = "present"
    ABSENT = "absent"


class Source(StrEnum):
    """Reporting component of the events, used to select them."""

    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    KARPENTER = "karpenter"
