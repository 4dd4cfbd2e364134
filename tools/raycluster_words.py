"""What does `kubectl explain raycluster` say about each field?

One short sentence per field of ours; core types stay without, their documentation is Kubernetes'. `described` writes
them into a schema, and fails if a path does not exist, so that the words stay true to the fields. Used by crds.py.
"""

import json
from typing import Any

WORDS = {
    "": "A Ray cluster: one head and any number of worker groups.",
    "spec": "What the cluster should be.",
    "spec.authOptions": "Authentication of Ray's own interfaces.",
    "spec.authOptions.enableK8sTokenAuth": "Let the Kubernetes API server check tokens. Ray 2.55 or newer.",
    "spec.authOptions.mode": "token or disabled. A token needs Ray 2.52 or newer.",
    "spec.authOptions.secretName": "A Secret of yours with the key auth_token; without one it is made.",
    "spec.autoscalerOptions": "Settings of the autoscaler; read only if enableInTreeAutoscaling is true.",
    "spec.autoscalerOptions.idleTimeoutSeconds": "Seconds until an idle worker is removed. Ray's default is 60.",
    "spec.autoscalerOptions.upscalingMode": "How fast to grow. Ray's default is Default.",
    "spec.autoscalerOptions.version": "v1 or v2. Ray 2.47 and newer choose v2.",
    "spec.enableInTreeAutoscaling": "Run an autoscaler that sets replicas of the worker groups.",
    "spec.gcsFaultToleranceOptions": "Keep the state of the head outside of it, so that a new head can go on.",
    "spec.gcsFaultToleranceOptions.backend": "redis, the default, or rocksdb. Cannot be changed once set.",
    "spec.gcsFaultToleranceOptions.externalStorageNamespace": "The key prefix in Redis; by default the cluster's uid.",
    "spec.gcsFaultToleranceOptions.redisAddress": "host:port of Redis.",
    "spec.gcsFaultToleranceOptions.storage": "The volume of backend rocksdb.",
    "spec.gcsFaultToleranceOptions.storage.claimName": "A PersistentVolumeClaim of yours, instead of a new one.",
    "spec.gcsFaultToleranceOptions.storage.deletionPolicy": "What happens to the claim when the cluster is deleted.",
    "spec.headGroupSpec": "The head: GCS, dashboard, and the place where drivers connect.",
    "spec.headGroupSpec.enableIngress": "Make an Ingress for the dashboard.",
    "spec.headGroupSpec.headService": "Metadata, ports and type to use for the head service.",
    "spec.headGroupSpec.labels": "Labels of the Ray node, and of the pod.",
    "spec.headGroupSpec.rayStartParams": "Options of `ray start`, without the leading dashes.",
    "spec.headGroupSpec.resources": "Ray resources of the head, e.g. CPU, GPU, memory or your own.",
    "spec.headGroupSpec.serviceType": "The type of the head service. ClusterIP if absent.",
    "spec.headGroupSpec.template": "The head's pod; its first container runs Ray.",
    "spec.headServiceAnnotations": "Annotations of the head service; they win over those of headService.",
    "spec.historyServerOptions": "Collect logs and events for a history server.",
    "spec.managedBy": "Who reconciles this object. Cannot be changed once set.",
    "spec.networkPolicy": "Make a NetworkPolicy for the pods of this cluster.",
    "spec.rayVersion": "Ray's version in the images, e.g. 2.60.0; some features ask for it.",
    "spec.suspend": "Remove all pods, until it is false again.",
    "spec.tlsOptions": "Encrypt traffic between Ray's processes, with certificates of cert-manager.",
    "spec.upgradeStrategy.type": "Recreate: make all pods anew when their templates change. None: leave them.",
    "spec.workerGroupSpecs": "Groups of equal workers; each has a name of its own.",
    "spec.workerGroupSpecs[].groupName": "The group's name, part of its pods' names and labels.",
    "spec.workerGroupSpecs[].idleTimeoutSeconds": "Seconds until an idle worker is removed. Autoscaler v2 only.",
    "spec.workerGroupSpecs[].labels": "Labels of the Ray nodes, and of the pods.",
    "spec.workerGroupSpecs[].maxReplicas": "replicas above this count as this.",
    "spec.workerGroupSpecs[].minReplicas": "replicas below this count as this.",
    "spec.workerGroupSpecs[].numOfHosts": "Pods per replica, made and removed together.",
    "spec.workerGroupSpecs[].priority": "Which group grows first. Autoscaler v2 and Ray 2.56 or newer.",
    "spec.workerGroupSpecs[].rayStartParams": "Options of `ray start`, without the leading dashes.",
    "spec.workerGroupSpecs[].replicas": "How many replicas there should be. Set by the autoscaler, if there is one.",
    "spec.workerGroupSpecs[].resources": "Ray resources of each worker, e.g. CPU, GPU, memory or your own.",
    "spec.workerGroupSpecs[].scaleStrategy": "Which pods to remove.",
    "spec.workerGroupSpecs[].scaleStrategy.workersToDelete": "Names of pods to remove first.",
    "spec.workerGroupSpecs[].suspend": "Remove the pods of this group, until it is false again.",
    "spec.workerGroupSpecs[].template": "A worker's pod; its first container runs Ray.",
    "status": "What was last seen.",
    "status.availableWorkerReplicas": "Workers that run.",
    "status.conditions": "What is going on, and since when.",
    "status.desiredWorkerReplicas": "Workers there should be.",
    "status.endpoints": "Ports of the head service by name.",
    "status.head": "The head pod and its service.",
    "status.readyWorkerReplicas": "Workers that run and are ready.",
    "status.state": "ready once every pod has run, suspended, or empty. The conditions say more.",
}


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """A copy of the schema with the sentences in it."""
    schema = json.loads(json.dumps(schema))
    for path, sentence in WORDS.items():
        node = schema
        for step in filter(None, path.replace("[]", ".[]").split(".")):
            node = node["items"] if step == "[]" else node["properties"][step]
        rest = dict(node)
        node.clear()
        node.update({"description": sentence, **rest})
    return schema
