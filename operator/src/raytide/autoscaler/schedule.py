"""What should the cluster become?"""

from raytide.autoscaler.model import Decision, SchedulingInput
from raytide.autoscaler.scheduling.ray_exact import decide_as_ray


def schedule(question: SchedulingInput) -> Decision:
    """Decide."""
    return decide_as_ray(question)
