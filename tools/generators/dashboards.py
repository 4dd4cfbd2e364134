"""Grafana dashboards of the chart, or a check that they are current.

A dashboard is a list of rows, a row a list of panels: title, description, unit and PromQL. This module lays them out on Grafana's
24 columns and writes `helm/raytide/dashboards/*.json`, which the chart puts into a ConfigMap. `make dashboards` writes; with
`--check` nothing is changed and a file that differs is an error. tools/checks/monitoring.py checks the expressions with promtool.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raytide.api.constants import LEADER_LEASE

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "helm" / "raytide" / "dashboards"
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS: Final = 24
HEIGHTS: Final = {"stat": 4, "timeseries": 8, "table": 8}
Json = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One panel; `queries` are pairs of an expression and its legend."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    width: int = 12
    kind: str = "timeseries"
    is_stacked: bool = False


@dataclass(frozen=True)
class Variable:
    """A template variable with the values of a label of a metric."""

    name: str
    label: str
    of: str
    is_all_any: bool = True
    """Whether All matches any value, for labels with too many values for a regular expression of all of them."""


@dataclass(frozen=True)
class Dashboard:
    """One dashboard; its file is named after its uid."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def stat(title: str, description: str, query: str, *, unit: str = "short") -> Panel:
    """A number."""
    return Panel(title, description, unit, ((query, ""),), width=6, kind="stat")


def table(title: str, description: str, query: str, *, unit: str = "short") -> Panel:
    """The present samples of an expression, one a line."""
    return Panel(title, description, unit, ((query, ""),), kind="table")


def graph(title: str, description: str, unit: str, *queries: tuple[str, str], is_stacked: bool = False) -> Panel:
    """Lines over time."""
    return Panel(title, description, unit, queries, is_stacked=is_stacked)


def quantiles(metric: str, matchers: str, labels: str = "") -> tuple[tuple[str, str], ...]:
    """The median and the 99th percentile of a histogram, by labels."""
    by = f"le, {labels}" if labels else "le"
    legend = "".join(f"{{{{{label.strip()}}}}} " for label in labels.split(",")) if labels else ""
    return tuple(
        (
            f"histogram_quantile({quantile}, sum by ({by}) (rate({metric}_bucket{{{matchers}}}[$__rate_interval])))",
            f"{legend}{name}",
        )
        for quantile, name in ((0.5, "median"), (0.99, "99 %"))
    )


# --- RayClusters ---------------------------------------------------------------------------------------------------------

CLUSTER: Final = 'namespace=~"$namespace", name=~"$name"'
SIDECAR: Final = 'namespace=~"$namespace", ray_io_cluster=~"$name"'
LEADER_ONLY: Final = "Replicas that are not the leader have no such series."


def workers(state: str) -> str:
    """Workers of the selected RayClusters in this state, once each while the leader changes."""
    return f'sum(max by (namespace, name, group) (raycluster_workers{{{CLUSTER}, state="{state}"}})) or vector(0)'


RAYCLUSTERS: Final = Dashboard(
    uid="raytide-rayclusters",
    title="Raytide RayClusters",
    description="Workers of RayClusters, what they wait for, and the decisions of their autoscalers.",
    variables=(
        Variable("namespace", "namespace", "raycluster_workers"),
        Variable("name", "name", 'raycluster_workers{namespace=~"$namespace"}'),
    ),
    rows=(
        (
            "Workers",
            (
                stat("Desired workers", "Workers that the selected RayClusters should have.", workers("desired")),
                stat("Ready workers", "Workers that are running, ready and not terminating.", workers("ready")),
                stat(
                    "Missing workers",
                    "Desired workers that are not ready.",
                    f"sum(max by (namespace, name, group, reason) (raycluster_missing_workers{{{CLUSTER}}})) or vector(0)",
                ),
                stat(
                    "RayClusters with limited scaling",
                    "RayClusters whose condition ScalingLimited is True: pending demand gets no workers.",
                    f"count(max by (namespace, name) (raycluster_scaling_limited{{{CLUSTER}}})) or vector(0)",
                ),
                graph(
                    "Workers",
                    f"Desired and ready workers of all selected RayClusters. {LEADER_ONLY}",
                    "short",
                    (
                        f"sum by (state) (max by (namespace, name, group, state) (raycluster_workers{{{CLUSTER}}}))",
                        "{{state}}",
                    ),
                ),
                graph(
                    "Missing workers by reason",
                    "By the most frequent cause in each group; the runbook of RayClusterWorkersMissing has each.",
                    "short",
                    (
                        f"sum by (reason) (max by (namespace, name, group, reason) (raycluster_missing_workers{{{CLUSTER}}}))",
                        "{{reason}}",
                    ),
                    is_stacked=True,
                ),
                table(
                    "RayClusters with missing workers",
                    "Now, the largest first. `raytide why raycluster/NAME -n NAMESPACE` names the cause and the remedy.",
                    f"sort_desc(max by (namespace, name, group, reason) (raycluster_missing_workers{{{CLUSTER}}}) > 0)",
                ),
                table(
                    "RayClusters with limited scaling",
                    "Now, by the reason of the condition ScalingLimited.",
                    f"max by (namespace, name, reason) (raycluster_scaling_limited{{{CLUSTER}}}) > 0",
                ),
                graph(
                    "Workers by group",
                    "Desired and ready workers of the 20 largest groups; select a RayCluster by name to see all of its groups.",
                    "short",
                    (
                        f'topk(20, max by (namespace, name, group) (raycluster_workers{{{CLUSTER}, state="desired"}}))',
                        "{{namespace}}/{{name}} {{group}} desired",
                    ),
                    (
                        f'topk(20, max by (namespace, name, group) (raycluster_workers{{{CLUSTER}, state="ready"}}))',
                        "{{namespace}}/{{name}} {{group}} ready",
                    ),
                ),
                graph(
                    "Provisioning duration",
                    "From the creation of a RayCluster until all of its pods were ready for the first time.",
                    "s",
                    (
                        (
                            "quantile(0.5, max by (namespace, name, uid) "
                            f"(kuberay_cluster_provisioned_duration_seconds{{{CLUSTER}}}))"
                        ),
                        "median",
                    ),
                    (
                        (
                            "max(max by (namespace, name, uid) "
                            f"(kuberay_cluster_provisioned_duration_seconds{{{CLUSTER}}}))"
                        ),
                        "longest",
                    ),
                ),
                graph(
                    "Time to capacity",
                    "From the first missing worker of a RayCluster until none is missing; RayClusters of all namespaces.",
                    "s",
                    *quantiles("raycluster_time_to_capacity_seconds", ""),
                ),
            ),
        ),
        (
            "Autoscaler (needs the PodMonitor of the chart)",
            (
                graph(
                    "Pending demand",
                    "Requests of Ray that wait, by kind: tasks and actors, gangs (placement groups), request_resources().",
                    "short",
                    (f"sum by (kind) (raytide_autoscaler_demand{{{SIDECAR}}})", "{{kind}}"),
                    is_stacked=True,
                ),
                graph(
                    "Demand without a node",
                    "Pending requests for which no node exists or is being started, by cause; impossible: no group may ever run it.",
                    "short",
                    (f"sum by (why) (raytide_autoscaler_unmet{{{SIDECAR}}})", "{{why}}"),
                    is_stacked=True,
                ),
                graph(
                    "Decision latency",
                    "Duration of a tick of the autoscaler: reading, deciding and writing.",
                    "s",
                    *quantiles("raytide_autoscaler_tick_seconds", SIDECAR),
                ),
                graph(
                    "Desired replicas by group",
                    "The decision of the autoscaler, for the 20 largest groups.",
                    "short",
                    (
                        (
                            "topk(20, max by (namespace, ray_io_cluster, group) "
                            f"(raytide_autoscaler_wanted_replicas{{{SIDECAR}}}))"
                        ),
                        "{{namespace}}/{{ray_io_cluster}} {{group}}",
                    ),
                ),
                graph(
                    "Nodes",
                    "Nodes of Ray: active ones run Ray, including the head.",
                    "short",
                    (f"sum(autoscaler_active_nodes{{{SIDECAR}}})", "active"),
                    (f"sum(autoscaler_pending_nodes{{{SIDECAR}}})", "pending"),
                    (f"sum(autoscaler_recently_failed_nodes{{{SIDECAR}}})", "terminating"),
                ),
                graph(
                    "Ticks without a decision",
                    "Per second, by cause: kubernetes or pods cannot be read, the RayCluster is gone, or a bug.",
                    "ops",
                    (
                        f"sum by (why) (rate(raytide_autoscaler_skipped_ticks_total{{{SIDECAR}}}[$__rate_interval]))",
                        "{{why}}",
                    ),
                ),
                graph(
                    "Patches and drains",
                    "Patches of replicas by result, and requests to drain a node by the answer of Ray.",
                    "ops",
                    (
                        f"sum by (result) (rate(raytide_autoscaler_patches_total{{{SIDECAR}}}[$__rate_interval]))",
                        "patch {{result}}",
                    ),
                    (
                        f"sum by (answer) (rate(raytide_autoscaler_drains_total{{{SIDECAR}}}[$__rate_interval]))",
                        "drain {{answer}}",
                    ),
                ),
                graph(
                    "Memory of autoscalers",
                    "Resident memory of the process, for the 20 largest.",
                    "bytes",
                    (
                        (
                            f"topk(20, process_resident_memory_bytes{{{SIDECAR}}} "
                            "and on (namespace, pod, instance) raytide_autoscaler_tick_seconds_count)"
                        ),
                        "{{namespace}}/{{ray_io_cluster}}",
                    ),
                ),
            ),
        ),
    ),
)

# --- TrainingJobs --------------------------------------------------------------------------------------------------------

POOL: Final = "Of all nodes that TrainingJobs may use, regardless of the selection above."


def instances(state: str) -> str:
    """Trainers of the selected TrainingJobs in this state."""
    return (
        f'sum(max by (namespace, name) (trainingjob_instances{{{CLUSTER}, role="trainer", state="{state}"}}))'
        " or vector(0)"
    )


def pool(resources: str, divisor: str = "") -> tuple[tuple[str, str], ...]:
    """Free capacity of these resources, and the fragmented part."""
    return tuple(
        (f"max by (resource) ({metric}{{{resources}}}){divisor}", f"{{{{resource}}}} {legend}")
        for metric, legend in (("pool_free", "free"), ("pool_fragmented", "fragmented"))
    )


TRAININGJOBS: Final = Dashboard(
    uid="raytide-trainingjobs",
    title="Raytide TrainingJobs",
    description="Size and fulfillment of TrainingJobs, why they are resized or wait, and the capacity that is left.",
    variables=(
        Variable("namespace", "namespace", "trainingjob_fulfillment"),
        Variable("name", "name", 'trainingjob_fulfillment{namespace=~"$namespace"}'),
    ),
    rows=(
        (
            "Jobs",
            (
                stat(
                    "TrainingJobs",
                    "TrainingJobs that exist, also those that have ended.",
                    f"count(max by (namespace, name) (trainingjob_fulfillment{{{CLUSTER}}})) or vector(0)",
                ),
                stat(
                    "Waiting TrainingJobs",
                    "TrainingJobs whose condition Waiting is True: they lack capacity for the minimum, or their pods do not run.",
                    f"count(max by (namespace, name) (trainingjob_waiting_seconds{{{CLUSTER}}}) > 0) or vector(0)",
                ),
                stat("Desired trainers", "Trainers that the selected jobs should have.", instances("desired")),
                stat("Ready trainers", "Trainers that are ready.", instances("ready")),
                graph(
                    "Fulfillment",
                    "0 at min-instance, 1 at max-instance; the 20 jobs with the lowest.",
                    "percentunit",
                    (
                        f"bottomk(20, max by (namespace, name) (trainingjob_fulfillment{{{CLUSTER}}}))",
                        "{{namespace}}/{{name}}",
                    ),
                ),
                graph(
                    "Trainers by state",
                    "Of all selected jobs; desired are wanted, the others exist.",
                    "short",
                    (
                        (
                            "sum by (state) (max by (namespace, name, state) "
                            f'(trainingjob_instances{{{CLUSTER}, role="trainer"}}))'
                        ),
                        "{{state}}",
                    ),
                ),
                graph(
                    "Ready trainers by job",
                    "The 20 largest jobs.",
                    "short",
                    (
                        (
                            "topk(20, max by (namespace, name) "
                            f'(trainingjob_instances{{{CLUSTER}, role="trainer", state="ready"}}))'
                        ),
                        "{{namespace}}/{{name}}",
                    ),
                    is_stacked=True,
                ),
                table(
                    "Waiting TrainingJobs",
                    "Now, the longest wait first. `raytide why tj/NAME -n NAMESPACE` names the cause and the remedy.",
                    f"sort_desc(max by (namespace, name) (trainingjob_waiting_seconds{{{CLUSTER}}}) > 0)",
                    unit="s",
                ),
                graph(
                    "Resizes by reason",
                    "Of the TrainingJobs of all namespaces, per interval of the graph.",
                    "short",
                    (
                        "sum by (direction, reason) (increase(trainingjob_scale_total[$__rate_interval]))",
                        "{{direction}} {{reason}}",
                    ),
                    is_stacked=True,
                ),
                table(
                    "Most resizes in an hour",
                    "The 20 TrainingJobs that were resized most. `--rebalance-gap` and `scaling.scaleDownCooldown` limit resizes.",
                    (f"topk(20, sum by (namespace, name) (increase(trainingjob_resizes_total{{{CLUSTER}}}[1h])) > 0)"),
                ),
                graph(
                    "Failed pods",
                    "Pods that have failed since the start of their TrainingJob, by role.",
                    "short",
                    (
                        (
                            "sum by (role) (max by (namespace, name, role) "
                            f'(trainingjob_instances{{{CLUSTER}, state="failed"}}))'
                        ),
                        "{{role}}",
                    ),
                ),
            ),
        ),
        (
            "Capacity",
            (
                graph(
                    "CPU",
                    f"Free on usable nodes, and the part too fragmented for any waiting trainer. {POOL}",
                    "short",
                    *pool('resource="cpu"', " / 1000"),
                ),
                graph(
                    "Memory",
                    f"Free on usable nodes, and the part too fragmented for any waiting trainer. {POOL}",
                    "bytes",
                    *pool('resource="memory"'),
                ),
                graph(
                    "GPUs and other resources",
                    f"Free on usable nodes, and the part too fragmented for any waiting trainer. {POOL}",
                    "short",
                    *pool('resource!~"cpu|memory|pods|ephemeral-storage|hugepages-.*"'),
                ),
                graph(
                    "Duration of sharing passes",
                    "From reading the state of the cluster to the sizes of all TrainingJobs.",
                    "s",
                    *quantiles("pool_plan_seconds", ""),
                ),
            ),
        ),
    ),
)

# --- the operator --------------------------------------------------------------------------------------------------------

OPERATOR: Final = 'namespace=~"$namespace", job=~"$name"'
LEASE: Final = f'{OPERATOR}, name="{LEADER_LEASE}"'
"""Every controller that uses controller-runtime has the metric of leader election."""
BY_POD: Final = "{{namespace}}/{{pod}}"


def rate(metric: str, labels: str, matchers: str = "") -> str:
    """Increase of a counter per second."""
    return f"sum by ({labels}) (rate({metric}{{{OPERATOR}{matchers}}}[$__rate_interval]))"


RAYTIDE: Final = Dashboard(
    uid="raytide-operator",
    title="Raytide operator",
    description="Passes, queue, errors, leader election, watches and the process of the operator.",
    variables=(
        Variable("namespace", "namespace", "raytide_passes", is_all_any=False),
        Variable("name", "job", 'raytide_passes{namespace=~"$namespace"}', is_all_any=False),
    ),
    rows=(
        (
            "Health",
            (
                stat(
                    "Replicas",
                    "Operators that Prometheus scrapes.",
                    f"count(max by (namespace, job, instance) (raytide_passes{{{OPERATOR}}})) or vector(0)",
                ),
                stat(
                    "Leaders",
                    "Operators that hold the Lease: 1 for each release; 0 also if leader election is off.",
                    f"sum(leader_election_master_status{{{LEASE}}}) or vector(0)",
                ),
                stat(
                    "Objects that wait for a worker",
                    "Due objects without a free worker.",
                    f"sum(raytide_waiting_keys{{{OPERATOR}}}) or vector(0)",
                ),
                stat(
                    "Errors within an hour",
                    "Passes that ended with an error.",
                    f"round(sum(increase(raytide_reconcile_errors_total{{{OPERATOR}}}[1h]))) or vector(0)",
                ),
            ),
        ),
        (
            "Passes",
            (
                graph(
                    "Duration of passes",
                    "One pass reconciles one object, including its requests to the API server.",
                    "s",
                    *quantiles("raytide_reconcile_seconds", OPERATOR, "controller"),
                ),
                graph(
                    "Passes",
                    "Per second, by controller; sharing sizes all TrainingJobs in one pass.",
                    "ops",
                    (rate("raytide_passes", "controller"), "{{controller}}"),
                ),
                graph(
                    "Queue",
                    "Due objects that wait for a worker; rises if reconcileConcurrency is too small or passes are slow.",
                    "short",
                    (f"sum by (controller) (raytide_waiting_keys{{{OPERATOR}}})", "{{controller}}"),
                ),
                graph(
                    "Errors",
                    "Passes per second with an error; unavailable: no answer, or a conflict; rejected: by the API server; unexpected: a bug.",
                    "ops",
                    (rate("raytide_reconcile_errors_total", "controller, reason"), "{{controller}} {{reason}}"),
                ),
                graph(
                    "Writes",
                    "Creates, deletes and patches per second, and patches of status.",
                    "wps",
                    (rate("raytide_writes_total", "kind, verb"), "{{verb}} {{kind}}"),
                    (rate("raytide_status_writes_total", "controller"), "status {{controller}}"),
                ),
                graph(
                    "Writes that did not succeed",
                    "Per second, by result: refused by the API server, unavailable, unknown, or skipped until the next pass.",
                    "wps",
                    (rate("raytide_writes_total", "result", ', result!="done"'), "{{result}}"),
                ),
                graph(
                    "Duration of sharing passes",
                    "From reading the state of the cluster to the sizes of all TrainingJobs.",
                    "s",
                    *quantiles("pool_plan_seconds", OPERATOR),
                ),
                graph(
                    "Steps of sharing passes",
                    "Trainers per second that sharing passes add or remove.",
                    "ops",
                    (f"sum(rate(pool_plan_steps_total{{{OPERATOR}}}[$__rate_interval]))", "trainers"),
                ),
            ),
        ),
        (
            "Leader election and watches",
            (
                graph(
                    "Leader",
                    "1 for the operator that holds the Lease, 0 for the others.",
                    "short",
                    (f"max by (namespace, pod) (leader_election_master_status{{{LEASE}}})", BY_POD),
                ),
                graph(
                    "Age of the Lease",
                    "Since its last renewal by the leader; the leader stops writing at the renew deadline (20 s).",
                    "s",
                    (f"max by (namespace, pod) (raytide_lease_age_seconds{{{OPERATOR}}})", BY_POD),
                ),
                graph(
                    "Age of watches",
                    "Since the API server has last sent something about a resource; a bookmark arrives every minute.",
                    "s",
                    (f"max by (resource) (raytide_stream_age_seconds{{{OPERATOR}}})", "{{resource}}"),
                ),
                graph(
                    "Events of kopf",
                    "Per second, by resource, and restarts of kopf per hour.",
                    "short",
                    (rate("raytide_kopf_events_total", "resource"), "{{resource}}"),
                    (f"sum(increase(raytide_kopf_restarts_total{{{OPERATOR}}}[1h]))", "restarts per hour"),
                ),
            ),
        ),
        (
            "Process",
            (
                graph(
                    "Memory",
                    "Resident memory, and the memory limit of the container (resources.limits.memory of the chart).",
                    "bytes",
                    (f"max by (namespace, pod) (process_resident_memory_bytes{{{OPERATOR}}})", BY_POD),
                    (f"max(raytide_memory_limit_bytes{{{OPERATOR}}} > 0)", "limit"),
                ),
                graph(
                    "CPU",
                    "Processors in use; the limit is resources.limits.cpu of the chart.",
                    "short",
                    (
                        f"max by (namespace, pod) (rate(process_cpu_seconds_total{{{OPERATOR}}}[$__rate_interval]))",
                        BY_POD,
                    ),
                ),
                graph(
                    "Open files",
                    "Files and connections of the process.",
                    "short",
                    (f"max by (namespace, pod) (process_open_fds{{{OPERATOR}}})", BY_POD),
                ),
                graph(
                    "Uptime",
                    "Since the process started.",
                    "s",
                    (f"time() - max by (namespace, pod) (process_start_time_seconds{{{OPERATOR}}})", BY_POD),
                ),
            ),
        ),
    ),
)

DASHBOARDS: Final = (RAYCLUSTERS, TRAININGJOBS, RAYTIDE)

# --- Grafana's JSON ------------------------------------------------------------------------------------------------------


def build(dashboard: Dashboard) -> Json:
    """The dashboard as Grafana imports it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["raytide"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "links": [
            {
                "type": "dashboards",
                "title": "Raytide",
                "tags": ["raytide"],
                "asDropdown": True,
                "includeVars": False,
                "keepTime": True,
            }
        ],
        "panels": [{"id": number, **panel} for number, panel in enumerate(_panels(dashboard), start=1)],
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus", "current": {}}


def _variable(variable: Variable) -> Json:
    query = f"label_values({variable.of}, {variable.label})"
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "A"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+" if variable.is_all_any else None,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panels(dashboard: Dashboard) -> Iterator[Json]:
    """Rows and panels from left to right; the next line begins below the highest panel of the last one."""
    y = 0
    for title, panels in dashboard.rows:
        yield {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": _place(0, y, COLUMNS, 1)}
        y, x, height = y + 1, 0, 0
        for panel in panels:
            if x + panel.width > COLUMNS:
                y, x, height = y + height, 0, 0
            height = max(height, HEIGHTS[panel.kind])
            yield {**_panel(panel), "gridPos": _place(x, y, panel.width, HEIGHTS[panel.kind])}
            x += panel.width
        y += height


def _place(x: int, y: int, width: int, height: int) -> Json:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel) -> Json:
    is_instant = panel.kind != "timeseries"
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": OPTIONS[panel.kind],
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": expression,
                "legendFormat": legend,
                "instant": is_instant,
                "range": not is_instant,
                "format": "table" if panel.kind == "table" else "time_series",
            }
            for number, (expression, legend) in enumerate(panel.queries)
        ],
        **({"transformations": TRANSFORMATIONS} if panel.kind == "table" else {}),
    }


def _defaults(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        stacked = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if panel.is_stacked else {"fillOpacity": 0}
        defaults["custom"] = {"drawStyle": "line", "lineWidth": 1, "showPoints": "auto", **stacked}
    return defaults


OPTIONS: Final[dict[str, Json]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "none",
        "graphMode": "none",
    },
    "table": {"showHeader": True},
}
TRANSFORMATIONS: Final[list[Json]] = [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]


def texts() -> dict[Path, str]:
    """Every file as it should be."""
    return {FOLDER / f"{dashboard.uid}.json": json.dumps(build(dashboard), indent=1) + "\n" for dashboard in DASHBOARDS}


def main() -> int:
    """Write, or with `--check` compare."""
    wanted = texts()
    if sys.argv[1:] == ["--check"]:
        found = {path: path.read_text() for path in FOLDER.glob("*.json")}
        wrong = sorted(path.name for path in {*found, *wanted} if found.get(path) != wanted.get(path))
        print(f"dashboards: {', '.join(wrong)} not current; run make dashboards" if wrong else "dashboards: current")
        return 1 if wrong else 0
    FOLDER.mkdir(exist_ok=True)
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
