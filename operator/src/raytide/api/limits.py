"""Upper bounds on what is read of one object that tenants write: numbers and lists of custom resources, views of all others.

The bounds lie above legitimate use, so that one small object cannot exhaust the memory or block the event loop of an
operator that serves all tenants. The CRDs contain the same bounds (tools/generators/crds.py reads this file). clamp_numbers.py clamps the
numbers of objects stored under an older CRD and reports each clamped field. A list that is too long is a violation: to
reconcile only part of it would delete what the rest asks for. Pure; used by api/raycluster.py and api/trainingjob.py
(FD:SEC-F1).
"""

from typing import Final

MAX_GROUPS: Final = 300
"""Worker groups of a RayCluster. A plan builds one template per group (0.2 ms each), and `actions.MAX_WRITES` leaves a
create for every group, so that none waits for another."""
MAX_REPLICAS: Final = 1_000_000
"""Replicas of one worker group; `maxReplicas` may be any int32, because KubeRay's default is the largest."""
MAX_HOSTS: Final = 10_000
"""Hosts of one replica (`numOfHosts`)."""
MAX_NAMES: Final = 10_000
"""Names in one `workersToDelete`."""
MAX_GATES: Final = 100
"""Entries of one `scaleGate`."""
MAX_GATE_TYPE: Final = 316
"""Characters of `type` of such an entry, as in the conditions of Kubernetes."""
MAX_INSTANCES: Final = 3_000
"""Trainers or parameter servers of a TrainingJob; the ConfigMap that lists more would not fit into 1 MiB."""
MAX_PORTS: Final = 100
"""`ports_num` and `ports_num_for_sparse`, each."""
MAX_SIZES: Final = 1_000
"""Entries of `scaling.allowedSizes`."""
MAX_BUILT_BYTES: Final = 2_000_000
"""JSON size of the user-written specs of the pods that one plan builds: a 600 KB pod takes 10 ms, so three fit."""
MAX_RESOURCES: Final = 64
"""Resources that one pod requests, and that one node offers."""
MAX_CONTAINERS: Final = 256
"""Containers of one pod whose requests count, and as many init containers."""
MAX_CONSTRAINTS: Final = 100
"""Entries of a pod's node selector, requirements of its required node affinity, and tolerations, together."""
MAX_VALUES: Final = 1_000
"""Values of all these requirements together: names of nodes."""
MAX_CONSTRAINT_BYTES: Final = 32 * 1024
"""Characters of all these."""
MAX_AMOUNTS: Final = 2_048
"""Amounts in the requests and limits of the containers of one pod, and as many of its init containers."""
MAX_LABEL_BYTES: Final = 64 * 1024
"""Characters of a node's labels."""
MAX_QUOTA_RESOURCES: Final = 256
"""Resources of one ResourceQuota."""
MAX_CLASSES: Final = 200
"""PriorityClasses that one rule of a ResourceQuota names."""
MAX_UID: Final = 64
"""Characters of a uid: the API server's have 36; it does not check those of ownerReferences."""
MAX_MARK: Final = 256
"""Characters of an annotation of a pod that Raytide or KubeRay writes: a hash, a version, a revision."""
MAX_MANAGERS: Final = 200
"""Entries of `metadata.managedFields`, the latest ones."""
MAX_SCHEDULING_BYTES: Final = 64 * 1024
"""JSON size of the scheduling fields of one role's pod: containers' resources, selectors, affinity, tolerations."""
