"""Fields of unsupported features are reported, and the rest of the RayCluster runs (D21).

In each case the cluster becomes ready with all of its pods, the condition `Unsupported` names the field, and no object is
created that KubeRay would create for it.
"""

import re
from dataclasses import replace
from typing import Any

import pytest

from raytide.api import constants
from raytide.api.config import DEFAULT_FEATURE_GATES, OTHER_FEATURE_GATES
from support import virtual_time

from simulation.environment import Environment, log_errors_as_violations
from simulation.manifests import NAME, group, new_cluster

pytestmark = pytest.mark.looptime

WORKERS = 2
WRITTEN = {"pods", "services", "rayclusters", "events"}
"""Kinds of the writes for a cluster without autoscaling."""
PLURAL = re.compile(r"/namespaces/[^/]+/([a-z]+)")
ALL_GATES = DEFAULT_FEATURE_GATES | OTHER_FEATURE_GATES
COLLECTOR = {"image": "collector:1", "env": [{"name": "STORAGE_BACKEND", "value": "local"}]}
ACCEPTED = {constants.ALLOW_INSECURE_ANNOTATION: "authOptions,tlsOptions,networkPolicy"}


def cluster_with(
    spec: dict[str, Any] | None = None, *, head: dict[str, Any] | None = None, **metadata: dict[str, str]
) -> dict[str, Any]:
    """A cluster of one head and two workers with these additional fields."""
    obj = new_cluster([group("a", WORKERS)])
    obj["spec"] |= spec or {}
    obj["spec"]["headGroupSpec"] |= head or {}
    obj["metadata"] |= metadata
    return obj


CASES = {
    "spec.headGroupSpec.enableIngress": cluster_with(head={"enableIngress": True}),
    "spec.tlsOptions.enabled": cluster_with({"tlsOptions": {"enabled": True}}, annotations=ACCEPTED),
    "spec.historyServerOptions": cluster_with({"historyServerOptions": {"collectorOptions": COLLECTOR}}),
    "spec.upgradeStrategy.type": cluster_with({"upgradeStrategy": {"type": "Recreate"}}),
    "metadata.annotations[ray.io/enable-serve-service]": cluster_with(
        annotations={constants.ENABLE_SERVE_SERVICE_ANNOTATION: "true"}
    ),
    "metadata.labels[volcano.sh/queue-name]": cluster_with(labels={"volcano.sh/queue-name": "team"}),
}


@pytest.mark.rule("RC:REC-9", "RC:ING-1..4", "RC:ROU-1", "RC:POD-10", "RC:POD-11", "RC:VOL-3")
@pytest.mark.rule("RC:REC-13", "RC:SV-1..3", "RC:POD-15")
@pytest.mark.rule("RC:UP-2", "D21")
@pytest.mark.parametrize("field", CASES)
def test_an_unsupported_field_is_reported_and_the_cluster_runs_without_it(field: str) -> None:
    async def run() -> tuple[dict[str, Any], list[dict[str, Any]], list[str], list[str]]:
        env = Environment(21)
        env.operator.config = replace(env.operator.config, feature_gates=ALL_GATES)
        with log_errors_as_violations(env.checks):
            env.open()
            env.start()
            env.kube.create(CASES[field])
            await env.settle()
            await env.pass_time(10.0)
            cluster = env.kube.cluster(NAME)
            assert cluster is not None
            pods = env.kube.pods(cluster["metadata"]["uid"])
            await env.close()
        return cluster, pods, env.checks.writes, env.checks.violations

    cluster, pods, writes, violations = virtual_time.run(run())
    assert (violations, cluster["status"].get("state")) == ([], "ready"), cluster["status"]["conditions"]
    unsupported = [each for each in cluster["status"]["conditions"] if each["type"] == constants.UNSUPPORTED]
    assert [each["status"] for each in unsupported] == ["True"]
    assert f"{field}: " in unsupported[0]["message"]
    assert {found[1] for write in writes if (found := PLURAL.search(write))} <= WRITTEN
    assert "finalizers" not in cluster["metadata"]
    assert sorted(len(pod["spec"]["containers"]) for pod in pods) == [1] * (1 + WORKERS)
    volumes = {volume["name"].rpartition("-")[0] for pod in pods for volume in pod["spec"].get("volumes", [])}
    assert volumes <= {"shared", "kube-api-access"}


@pytest.mark.rule("RC:AU-1..3", "D21")
def test_without_the_annotation_no_pods_are_created_for_unsupported_authentication() -> None:
    async def run() -> tuple[list[dict[str, Any]], set[str], list[str]]:
        env = Environment(21)
        with log_errors_as_violations(env.checks):
            env.open()
            env.start()
            env.kube.create(cluster_with({"authOptions": {"mode": "token"}}))
            await env.pass_time(60.0)
            cluster = env.kube.cluster(NAME)
            assert cluster is not None
            assert any("authOptions" in each["message"] for each in cluster["status"]["conditions"])
            pods = env.kube.pods(cluster["metadata"]["uid"])
            kinds = {found[1] for write in env.checks.writes if (found := PLURAL.search(write))}
            await env.close()
        return pods, kinds, env.checks.violations

    pods, kinds, violations = virtual_time.run(run())
    assert (pods, violations) == ([], [])
    assert kinds <= {"services", "rayclusters", "events"}
