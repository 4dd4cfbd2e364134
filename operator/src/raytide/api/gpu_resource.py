"""Which resources of a container Ray counts as `GPU` (RC:K-5, AS:C-8).

The operator passes them to `ray start` as `--num-gpus` and sums them in the status, and the autoscaler counts them for a node
that does not exist yet: both have to agree, or a group is never scaled up for tasks that its workers could run.
"""

import re
from typing import Final

_MIG_SLICE: Final = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb")


def is_gpu(resource: str) -> bool:
    """Whether a Kubernetes resource name is that of a GPU or of a MIG slice, as in KubeRay."""
    return resource.endswith("gpu") or _MIG_SLICE.fullmatch(resource) is not None
