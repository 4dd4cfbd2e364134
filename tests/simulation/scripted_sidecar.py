"""Scripted autoscaler: writes given decisions as the sidecar would.

One JSON patch per decision with `test` operations, with replicas, `workersToDelete` and record together, under its own field
manager; it writes only while the container `autoscaler` of the head runs. `write_replicas` is the other writer of
`replicas`, a GitOps tool. Used by scenarios and tests of the operator.
"""

from typing import Any

import msgspec

from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, encode_record
from raytide_sandbox.apiserver.request_response import Request

from simulation.desired_state import DECISION_ANNOTATION
from simulation.environment import Environment
from simulation.manifests import NAME
from simulation.simulated_kube import NAMESPACE

GITOPS = "argocd-controller"
SIDECAR = "raytide-autoscaler"


class ScriptedSidecar:
    """The autoscaler of one RayCluster."""

    def __init__(self, env: Environment, name: str = NAME) -> None:
        self._stage = env
        self._name = name
        self.decisions: dict[str, GroupDecision] = {}

    async def decide(self, group: str, decision: GroupDecision) -> None:
        """Write the decision for one group as soon as the sidecar runs."""
        while (head := self._head()) is None:
            await self._stage.pass_time(0.5)
        cluster = self._cluster()
        self.decisions[group] = decision
        record = DecisionRecord(cluster["metadata"]["uid"], head, self._stage.kube.now(), self.decisions)
        index, spec = _find(cluster, group)
        path = f"/spec/workerGroupSpecs/{index}"
        strategy = {"workersToDelete": list(decision.delete)}
        annotations = {**(cluster["metadata"].get("annotations") or {}), DECISION_ANNOTATION: encode_record(record)}
        patch(
            self._stage,
            self._name,
            SIDECAR,
            [
                {"op": "test", "path": "/metadata/uid", "value": cluster["metadata"]["uid"]},
                {"op": "test", "path": f"{path}/groupName", "value": group},
                {"op": "test", "path": f"{path}/replicas", "value": spec["replicas"]},
                {"op": "replace", "path": f"{path}/replicas", "value": decision.replicas},
                {"op": "add", "path": f"{path}/scaleStrategy", "value": strategy},
                {"op": "add", "path": "/metadata/annotations", "value": annotations},
            ],
        )

    def _cluster(self) -> dict[str, Any]:
        cluster = self._stage.kube.cluster(self._name)
        assert cluster is not None
        return cluster

    def _head(self) -> str | None:
        """The uid of the head pod whose sidecar runs; None without one."""
        for pod in self._stage.kube.pods(self._cluster()["metadata"]["uid"]):
            is_going = "deletionTimestamp" in pod["metadata"] or pod["metadata"]["labels"]["ray.io/node-type"] != "head"
            containers = pod.get("status", {}).get("containerStatuses") or ()
            if not is_going and any(c["name"] == "autoscaler" and "running" in c["state"] for c in containers):
                return str(pod["metadata"]["uid"])
        return None


def write_replicas(env: Environment, group: str, replicas: int, *, manager: str = GITOPS, name: str = NAME) -> None:
    """Write the replicas of a group as another field manager."""
    cluster = env.kube.cluster(name)
    assert cluster is not None
    index, _ = _find(cluster, group)
    patch(
        env, name, manager, [{"op": "replace", "path": f"/spec/workerGroupSpecs/{index}/replicas", "value": replicas}]
    )


def patch(env: Environment, name: str, manager: str, operations: list[dict[str, Any]]) -> None:
    """Send a JSON patch as this field manager."""
    path = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters/{name}"
    headers = {"content-type": "application/json-patch+json"}
    body = msgspec.json.encode(operations)
    answer = env.kube.api.handle(Request("PATCH", path, {"fieldManager": manager}, headers, body))
    assert answer.status == 200, answer.body


def _find(cluster: dict[str, Any], group: str) -> tuple[int, dict[str, Any]]:
    groups = cluster["spec"]["workerGroupSpecs"]
    return next((i, each) for i, each in enumerate(groups) if each["groupName"] == group)
