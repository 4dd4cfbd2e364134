"""Node autoscalers: the setting whether there is one.

Read by the autoscaler of RayClusters, for its pods, and by fair sharing, for gangs that wait for nodes.
"""

from enum import StrEnum


class Presence(StrEnum):
    """Whether a node autoscaler adds nodes to this cluster (`--node-autoscaler`, RAYTIDE_AUTOSCALER_NODE_AUTOSCALER)."""

    AUTO = "auto"
    """Detected: by its events for RayClusters, by what it has in the API server for TrainingJobs."""
    PRESENT = "present"
    ABSENT = "absent"
