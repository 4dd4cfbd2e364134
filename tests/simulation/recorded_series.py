"""Series of the operator's registry, recorded each minute of a simulated hour, with a case for promtool.

In the run the quota of a namespace rejects two workers of a RayCluster for 25 minutes. RayClusterWorkersMissing must fire after
its 15 minutes and resolve, and no other alert may fire. Run as a program, this module prints the file of the case, in JSON,
which YAML contains; `make chart` passes it to `promtool test rules`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.samples import Sample

from raytide.metrics import REGISTRY
from raytide_sandbox.apiserver.request_response import Request
from support import virtual_time
from support.faults.types import Answer

from simulation.environment import Environment
from simulation.manifests import NAME, find, group
from simulation.scenarios import edit, live_cluster
from simulation.simulated_kube import NAMESPACE

RULES = Path(__file__).parents[2] / "helm" / "raytide" / "rules" / "raytide.yaml"
FULL_FROM, FULL_FOR, MINUTES = 10, 25, 60
FIRES = "RayClusterWorkersMissing"
FIRING = range(FULL_FROM + 17, FULL_FROM + FULL_FOR)
"""Minutes, without those in which the limits of the alert's `for` and of the recording lie."""
TARGET = {"job": "raytide", "instance": "a:8080"}
RETRIED_WITHIN = 10
"""Minutes until rejected creates are tried again."""
NOT_IN_THE_RUN = frozenset({"RaytideNoLeader", "RaytideOperatorAbsent"})
"""Alerts about what the simulation leaves out: leader election and the manager."""
ANNOTATIONS = {
    "summary": f"RayCluster {NAMESPACE}/{NAME} has had fewer ready workers than desired for 15 minutes",
    "description": (
        f"Desired workers of RayCluster {NAMESPACE}/{NAME} that are not ready: 2 (a: 2 QuotaExceeded). `raytide why"
        f" raycluster/{NAME} -n {NAMESPACE}` names the cause and the fix."
    ),
    "runbook_url": "https://github.com/raytide/raytide/blob/main/docs/runbooks.md#rayclusterworkersmissing",
}


def quota(request: Request) -> Answer | None:
    """Rejects each new pod."""
    is_pod = request.method == "POST" and request.path.endswith("/pods")
    return Answer(403, message='pods "w" is forbidden: exceeded quota: q, requested: pods=1') if is_pod else None


async def record() -> list[list[Sample]]:
    """The samples of each minute."""
    env, scrapes = Environment(3), []
    env.open()
    await live_cluster(env, group("a", 2))
    for minute in range(MINUTES):
        if minute == FULL_FROM:
            env.transport.admission = quota
            edit(env, lambda spec: find(spec, "a").update(replicas=4))
        if minute == FULL_FROM + FULL_FOR:
            env.transport.admission = lambda _request: None
        scrapes.append([sample for metric in REGISTRY.collect() for sample in metric.samples])
        await env.pass_time(60.0)
    await env.close()
    return scrapes


def series_of(scrapes: list[list[Sample]]) -> list[dict[str, str]]:
    """The series as promtool takes them: one value a minute, `_` where a scrape has none."""
    values: dict[str, list[str]] = {}
    for minute, samples in enumerate(scrapes):
        for sample in samples:
            labels = {("exported_" if name in TARGET else "") + name: value for name, value in sample.labels.items()}
            written = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted({**labels, **TARGET}.items()))
            found = values.setdefault(f"{sample.name}{{{written}}}", ["_"] * len(scrapes))
            found[minute] = repr(float(sample.value))
    return [{"series": name, "values": " ".join(found)} for name, found in sorted(values.items())]


def case(series: list[dict[str, str]]) -> dict[str, Any]:
    """What promtool checks: each alert in each fifth minute."""
    alerts = [rule["alert"] for part in yaml.safe_load(RULES.read_text())["groups"] for rule in part["rules"]]
    labels = {"namespace": NAMESPACE, "name": NAME, "severity": "warning"}
    fires = {"exp_labels": labels, "exp_annotations": ANNOTATIONS}
    tests: list[dict[str, Any]] = []
    for minute in sorted({*range(0, MINUTES, 5), *FIRING}):
        quiet = [alert for alert in alerts if alert != FIRES and alert not in NOT_IN_THE_RUN]
        tests += [{"alertname": alert, "eval_time": f"{minute}m", "exp_alerts": []} for alert in quiet]
        if minute <= FULL_FROM + 14 or minute in FIRING or minute > FULL_FROM + FULL_FOR + RETRIED_WITHIN:
            tests.append({"alertname": FIRES, "eval_time": f"{minute}m", "exp_alerts": [fires] * (minute in FIRING)})
    name = "series recorded from a run in which a quota rejects workers"
    return {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{"name": name, "interval": "1m", "input_series": series, "alert_rule_test": tests}],
    }


if __name__ == "__main__":
    json.dump(case(series_of(virtual_time.run(record()))), sys.stdout)
