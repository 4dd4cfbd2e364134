"""Validation of a RayCluster.

`violations` takes the cluster and the settings and returns every violation, each with its rule, the field and what to
write instead; `warnings` returns settings that are unusual but allowed; `unsupported` returns fields of features that
are not built yet. It reads nothing but the object and never raises. The reconciler and the admission webhook use the
same functions; the rules are RC:V-1..V-65, and most of them are in the CRD too. V-62, the presence of cert-manager, is
not checked: TLS is not built, and a cluster that asks for it gets no pods (protection.py).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from raytide.api import constants
from raytide.api.conditions import is_condition_true
from raytide.api.config import ClusterConfig
from raytide.api.raycluster import GroupSpec, RayCluster, WorkerGroupSpec
from raytide.api.violations import Unsupported, Violation, first_violations
from raytide.raycluster.spec_queries import (
    AUTOSCALER_V2_ENV,
    has_env,
    is_autoscaler_v2_chosen,
    is_autoscaler_v2_env_on,
    parse_ray_version,
    restart_policy,
)
from raytide.raycluster.unsupported import unsupported
from raytide.raycluster.validation_options import option_violations

__all__ = ["Unsupported", "Violation", "unsupported", "violations", "warnings"]

MAX_NAME_LENGTH: Final = 53
GROUP_SUSPEND_GATE: Final = "RayJobDeletionPolicy"
PRIORITY_SINCE: Final = (2, 56, 0)

_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_DNS_1123_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")
_V2_ONLY: Final = "is read by autoscaler v2 only; set spec.autoscalerOptions.version to v2, or remove it"
"""V-14, V-15."""
_RESOURCE_PARAMS: Final = ("num-cpus", "num-gpus", "memory", "resources")


def violations(cluster: RayCluster, config: ClusterConfig) -> tuple[Violation, ...]:
    """The violations of the cluster, in the order of the rules; empty means valid."""
    return first_violations(
        chain(
            _name_violations(cluster),
            _group_violations(cluster.spec.head_group_spec, "spec.headGroupSpec", "head", first_rule=3),
            _unique_names(cluster),
            (
                violation
                for i, group in enumerate(cluster.spec.worker_group_specs)
                for violation in _worker(cluster, group, i)
            ),
            option_violations(cluster, config),
            _suspend_violations(cluster, config),
            _autoscaling_violations(cluster),
            _upgrade_violations(cluster),
            _status_violations(cluster),
        )
    )


def warnings(cluster: RayCluster) -> tuple[Violation, ...]:
    """Settings that are allowed but probably not intended (RC:V-61), and numbers above their limit."""
    return (*cluster.clamped, *_odd_restarts(cluster))


def _odd_restarts(cluster: RayCluster) -> tuple[Violation, ...]:
    options = cluster.spec.autoscaler_options
    if not cluster.is_autoscaled or options is None or options.version != "v1":
        return ()
    groups = [
        group.group_name
        for group in cluster.spec.worker_group_specs
        if restart_policy(group.template) not in ("", "Never")
    ]
    if not groups:
        return ()
    message = (
        f"worker groups {', '.join(groups)} restart their containers, which autoscaler v1 does not expect; "
        "set template.spec.restartPolicy to Never"
    )
    return (Violation("V-61", "spec.workerGroupSpecs", message),)


# --- metadata ------------------------------------------------------------------------------------------------------
def _name_violations(cluster: RayCluster) -> Iterator[Violation]:
    name = cluster.metadata.name
    if len(name) > MAX_NAME_LENGTH:
        message = f"is {len(name)} characters long; use at most {MAX_NAME_LENGTH}, because the names of services and pods begin with it"
        yield Violation("V-1", "metadata.name", message, constants.INVALID_METADATA)
    if not _DNS_1035.match(name):
        message = (
            f"{name!r} is not a DNS-1035 label; start with a lower-case letter, go on with lower-case letters, digits "
            "and '-', end with a letter or digit"
        )
        yield Violation("V-2", "metadata.name", message, constants.INVALID_METADATA)


# --- groups --------------------------------------------------------------------------------------------------------
def _group_violations(group: GroupSpec, field: str, who: str, *, first_rule: int) -> Iterator[Violation]:
    """V-3..V-6 of the head, V-7, V-12 and V-13 of a worker group."""
    containers, resources, labels = ("V-3", "V-4", "V-5") if first_rule == 3 else ("V-7", "V-12", "V-13")
    spec = group.template.get("spec") or {}
    if not spec.get("containers"):
        yield Violation(
            containers, f"{field}.template.spec.containers", f"is empty; the first container of the {who} runs Ray"
        )
    doubled = [param for param in _RESOURCE_PARAMS if group.ray_start_params.get(param)]
    if group.resources and doubled:
        message = f"and rayStartParams ({', '.join(doubled)}) both name resources; keep them in one of the two"
        yield Violation(resources, f"{field}.resources", message)
    if "labels" in group.ray_start_params:
        message = f"is ignored in rayStartParams; set the labels of the {who} in {field}.labels"
        yield Violation(labels, f"{field}.rayStartParams.labels", message)
    yield from _label_violations(group.labels, f"{field}.labels", "V-6" if first_rule == 3 else "V-13")


def _label_violations(labels: Mapping[str, str], field: str, rule: str) -> Iterator[Violation]:
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        is_prefix_good = not slash or (len(prefix) <= 253 and _DNS_1123_SUBDOMAIN.match(prefix))
        if not is_prefix_good or len(name) > 63 or not _LABEL_NAME.match(name):
            message = (
                "is not a label key; use [prefix/]name: at most 63 letters, digits, '-', '_' and '.', "
                "beginning and ending with a letter or digit, the prefix a DNS name"
            )
            yield Violation(rule, f"{field}[{key}]", message)
        if len(value) > 63 or (value and not _LABEL_NAME.match(value)):
            message = (
                f"has the value {value!r}, which is not a label value; use at most 63 letters, digits, '-', '_' and '.', "
                "beginning and ending with a letter or digit"
            )
            yield Violation(rule, f"{field}[{key}]", message)


def _unique_names(cluster: RayCluster) -> Iterator[Violation]:
    times = Counter(group.group_name for group in cluster.spec.worker_group_specs)
    seen: set[str] = set()
    for i, group in enumerate(cluster.spec.worker_group_specs):
        if group.group_name in seen:
            message = (
                f"{group.group_name!r} is the name of {times[group.group_name]} groups; give each group a unique name"
            )
            yield Violation("1.4", f"spec.workerGroupSpecs[{i}].groupName", message)
        seen.add(group.group_name)


def _worker(cluster: RayCluster, group: WorkerGroupSpec, index: int) -> Iterator[Violation]:
    field = f"spec.workerGroupSpecs[{index}]"
    yield from _group_violations(group, field, f"group {group.group_name!r}", first_rule=7)
    yield from _count_violations(cluster, group, field)
    if group.idle_timeout_seconds is not None:
        yield from _idle_violations(cluster, group.idle_timeout_seconds, f"{field}.idleTimeoutSeconds")
    if group.priority:
        yield from _priority_violations(cluster, f"{field}.priority")


def _count_violations(cluster: RayCluster, group: WorkerGroupSpec, field: str) -> Iterator[Violation]:
    low, high = group.min_replicas, group.max_replicas
    if not cluster.is_autoscaled and (low is None or high is None):
        missing = "minReplicas" if low is None else "maxReplicas"
        yield Violation("V-8", f"{field}.{missing}", "is null; set a number")
    if low is not None and low < 0:
        yield Violation("V-9", f"{field}.minReplicas", f"is {low}; set 0 or more")
    if high is not None and high < 0:
        yield Violation("V-10", f"{field}.maxReplicas", f"is {high}; set 0 or more")
    if low is not None and high is not None and low > high:
        message = f"is {low}, above maxReplicas {high}; lower it or raise maxReplicas"
        yield Violation("V-11", f"{field}.minReplicas", message)


def _idle_violations(cluster: RayCluster, idle_timeout_s: int, field: str) -> Iterator[Violation]:
    if idle_timeout_s < 0:
        yield Violation("V-14", field, f"is {idle_timeout_s}; set 0 or more")
    elif not is_autoscaler_v2_chosen(cluster):
        yield Violation("V-14", field, _V2_ONLY)


def _priority_violations(cluster: RayCluster, field: str) -> Iterator[Violation]:
    written = cluster.spec.ray_version
    version = parse_ray_version(written)
    if version is None or version < PRIORITY_SINCE:
        actual = f"spec.rayVersion is {written!r}" if written else "spec.rayVersion is missing"
        yield Violation(
            "V-15", field, f"needs Ray 2.56.0 or newer, but {actual}; set spec.rayVersion, or remove the priority"
        )
    elif not is_autoscaler_v2_chosen(cluster):
        yield Violation("V-15", field, _V2_ONLY)


# --- suspend, autoscaling, upgrade ---------------------------------------------------------------------------------
def _suspend_violations(cluster: RayCluster, config: ClusterConfig) -> Iterator[Violation]:
    for i, group in enumerate(cluster.spec.worker_group_specs):
        if not group.suspend:
            continue
        field = f"spec.workerGroupSpecs[{i}].suspend"
        if GROUP_SUSPEND_GATE not in config.feature_gates:
            yield Violation(
                "V-33",
                field,
                f"needs feature gate {GROUP_SUSPEND_GATE}, which is disabled; enable it, or remove the field",
            )
        if cluster.is_autoscaled:
            message = "is not possible while spec.enableInTreeAutoscaling is true; switch one of the two off"
            yield Violation("V-35", field, message)


def _autoscaling_violations(cluster: RayCluster) -> Iterator[Violation]:
    spec, options = cluster.spec, cluster.spec.autoscaler_options
    head = spec.head_group_spec.template
    env_field = "spec.headGroupSpec.template.spec.containers[0].env"
    if not cluster.is_autoscaled and is_autoscaler_v2_env_on(head):
        message = f"enables {AUTOSCALER_V2_ENV} without an autoscaler; set spec.enableInTreeAutoscaling to true"
        yield Violation("V-34", env_field, message)
    if options is None:
        return
    if cluster.is_autoscaled and options.version and has_env(head, AUTOSCALER_V2_ENV):
        message = f"duplicates spec.autoscalerOptions.version in {AUTOSCALER_V2_ENV}; remove the variable"
        yield Violation("V-36", env_field, message)
    if cluster.is_autoscaled and options.version == "v2":
        yield from _restart_violations(cluster)
    idle_timeout_s = options.idle_timeout_seconds
    if idle_timeout_s is not None and idle_timeout_s < 0:
        field = "spec.autoscalerOptions.idleTimeoutSeconds"
        yield Violation("V-39", field, f"is {idle_timeout_s}; set 0 or more")
    if any(env.get("name") == "KUBERAY_GEN_AUTOSCALER_START_CMD" for env in options.env):
        message = "sets KUBERAY_GEN_AUTOSCALER_START_CMD, which the operator sets itself; remove it"
        yield Violation("V-40", "spec.autoscalerOptions.env", message)


def _restart_violations(cluster: RayCluster) -> Iterator[Violation]:
    templates = [("V-37", "spec.headGroupSpec", cluster.spec.head_group_spec.template)]
    for i, group in enumerate(cluster.spec.worker_group_specs):
        templates.append(("V-38", f"spec.workerGroupSpecs[{i}]", group.template))
    for rule, field, template in templates:
        policy = restart_policy(template)
        if policy not in ("", "Never"):
            message = f"is {policy}; autoscaler v2 replaces pods, so set Never or omit the field"
            yield Violation(rule, f"{field}.template.spec.restartPolicy", message)


def _status_violations(cluster: RayCluster) -> Iterator[Violation]:
    conditions = cluster.status.get("conditions") or ()
    if all(is_condition_true(conditions, kind) for kind in (constants.SUSPENDING, constants.SUSPENDED)):
        message = f"{constants.SUSPENDING} and {constants.SUSPENDED} are both True; the suspension is completed, which sets the first to False"
        yield Violation("V-65", "status.conditions", message, constants.INVALID_STATUS)


def _upgrade_violations(cluster: RayCluster) -> Iterator[Violation]:
    strategy = cluster.spec.upgrade_strategy
    if not strategy or not strategy.get("type"):
        return
    field = "spec.upgradeStrategy.type"
    if strategy["type"] not in ("Recreate", "None"):
        yield Violation("V-63", field, f"is {strategy['type']!r}; set Recreate or None")
    owner = cluster.metadata.labels.get(constants.ORIGINATED_FROM_CRD_LABEL)
    if owner in ("RayJob", "RayService"):
        yield Violation(
            "V-64", field, f"must not be set, the {owner} that created this RayCluster upgrades it; remove it"
        )
