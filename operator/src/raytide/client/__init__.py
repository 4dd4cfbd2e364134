"""Python client for RayClusters and TrainingJobs: `raytide.RayCluster`, `raytide.TrainingJob`, and `raytide.aio` with both as coroutines.

`manifests.py` builds objects, `workloads.py` reads and writes them with the rights of the kubeconfig's user, `blocking.py` does
the same for callers without an event loop, and `outcome.py` is what they return. The names of `raytide` are loaded when they are
used: the operator and the sidecar import none of this.
"""
