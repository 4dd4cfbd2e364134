"""Job that removes the state of a RayCluster's GCS from Redis.

Its pod is the head pod with another command (RC:RJ-1..4), so that it finds Redis as the head did: image, environment, volumes and
placement are the head's. Dropped is what could keep it waiting, or what it has no use for: sidecars, scheduling gates, queues and
gangs of other schedulers, claims of devices, the token of Ray, whose Secret may be gone, and the autoscaler's service account. Pure; called by deletion.py.
"""

import shlex
from typing import Any, Final

from raytide.api import constants
from raytide.api.config import PodConfig
from raytide.api.meta import JOBS, Manifest
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.environment import add_env, build_literal
from raytide.raycluster.manifests.pod_builder import PodContext, listed
from raytide.raycluster.manifests.pods import build_head_pod
from raytide.raycluster.manifests.rbac import named_service_account
from raytide.raycluster.manifests.token_auth import without_token

ACTIVE_DEADLINE_S: Final = 300
TTL_S: Final = 30
CONNECT_RETRIES: Final = 60
"""Half a second each. KubeRay tries for a minute, but no failed clean-up may hold a RayCluster for longer than that (SC:S20)."""
RESOURCES: Final = {"cpu": "200m", "memory": "256Mi"}

_SCRIPT: Final = """
import os, sys
from urllib.parse import urlparse
from ray._private.gcs_utils import cleanup_redis_storage
address = os.environ["RAY_REDIS_ADDRESS"].split(",")[0]
url = urlparse(address if "://" in address else f"redis://{address}")
user = {"username": os.environ["REDIS_USERNAME"] or url.username or ""} if "REDIS_USERNAME" in os.environ else {}
sys.exit(not cleanup_redis_storage(
    host=url.hostname, port=url.port or 6379, password=os.environ.get("REDIS_PASSWORD") or url.password or "",
    use_ssl=url.scheme == "rediss", storage_namespace=os.environ["RAY_external_storage_namespace"], **user))
""".strip()
"""Older versions of Ray do not have the parameter `username`."""

_QUEUES: Final = (
    "kueue.x-k8s.io/",
    "kai.scheduler/",
    "scheduling.k8s.io/",
    "scheduling.x-k8s.io/",
    "volcano.sh/",
    "yunikorn.apache.org/",
)
"""Prefixes of labels and annotations with which other schedulers let a pod wait for a queue or a gang."""
_NOT_NEEDED: Final = (
    *("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
    *("resizePolicy", "restartPolicy", "restartPolicyRules"),
)
"""Fields of the Ray container. The last three contradict `restartPolicy: Never` of the pod."""
_WAITING: Final = ("schedulingGates", "schedulerName", "resourceClaims", "schedulingGroup", "resources")
"""Fields of the pod."""


def cleanup_job_name(cluster: str) -> str:
    """The Job's name (RC:RJ-1)."""
    return constants.check_label(f"{cluster}-{constants.REDIS_CLEANUP}")


def build_cleanup_job(cluster: RayCluster, config: PodConfig, *, is_owned: bool, deadline_s: float) -> Manifest:
    """The Job, which ends within `deadline_s`: a later cluster may use the same storage namespace.

    One without an owner is gone by its TTL: in a foreground deletion garbage collection would delete it before its owner.
    """
    head = build_head_pod(cluster, config, "")
    metadata = head["metadata"]
    labels = _without_queues(metadata["labels"]) | {constants.NODE_TYPE_LABEL: constants.REDIS_CLEANUP}
    labels.pop(constants.SERVE_LABEL, None)
    annotations = _without_queues(metadata.get("annotations", {}))
    uid = {} if is_owned else {constants.RAYCLUSTER_UID_ANNOTATION: cluster.metadata.uid}
    owners = {"ownerReferences": metadata["ownerReferences"]} if is_owned else {}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": cleanup_job_name(cluster.metadata.name),
            "namespace": cluster.metadata.namespace,
            "labels": labels,
            "annotations": {**annotations, **uid},
            **owners,
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": max(1, min(ACTIVE_DEADLINE_S, int(deadline_s))),
            **({} if is_owned else {"ttlSecondsAfterFinished": TTL_S}),
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": _pod_spec(cluster, config, head["spec"]),
            },
        },
    }


def is_cleanup_of(cluster: RayCluster, job: Manifest) -> bool:
    """Whether a Job of that name is this cluster's, ours or KubeRay's, and not that of an earlier one with the same name."""
    metadata, uid = job["metadata"], cluster.metadata.uid
    owners = {owner.get("uid") for owner in metadata.get("ownerReferences") or ()}
    named = (metadata.get("annotations") or {}).get(constants.RAYCLUSTER_UID_ANNOTATION)
    return not metadata.get("deletionTimestamp") and (uid in owners or named == uid)


def _pod_spec(cluster: RayCluster, config: PodConfig, head: Manifest) -> Manifest:
    ray = {field: value for field, value in head["containers"][0].items() if field not in _NOT_NEEDED}
    patience = {
        "RAY_redis_db_connect_retries": str(CONNECT_RETRIES),
        "RAY_redis_db_connect_wait_milliseconds": "500",
    }
    ray = add_env(ray, [build_literal(name, value) for name, value in patience.items()])
    ray |= {
        "command": PodContext(cluster, cluster.spec.head_group_spec, config).shell,
        "args": [f"python -c {shlex.quote(_SCRIPT)}"],
        "resources": {"requests": dict(RESOURCES), "limits": dict(RESOURCES)},
    }
    spec: Manifest = {**head, "containers": [without_token(ray)], "restartPolicy": "Never"}
    for field in _WAITING:
        spec.pop(field, None)
    init = [one for one in listed(head, "initContainers") if one.get("name") != constants.AUTOSCALER_CONTAINER]
    spec["initContainers"] = [_without_claims(one) for one in init]
    if cluster.is_autoscaled and not named_service_account(cluster):  # the autoscaler's, which may be gone by now
        spec.pop("serviceAccountName", None)
        spec["automountServiceAccountToken"] = False
    return {field: value for field, value in spec.items() if value not in ([], None)}


def _without_claims(container: Manifest) -> Manifest:
    resources = container.get("resources")
    if not isinstance(resources, dict) or "claims" not in resources:
        return container
    return {**container, "resources": {name: value for name, value in resources.items() if name != "claims"}}


def _without_queues(names: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in names.items() if not name.startswith(_QUEUES)}
