"""Accepted differences between Raytide's and KubeRay's handling of a RayCluster, with their reasons.

Takes two records of one file (golden_recorder.py) and the file itself, gives every place where they differ with both
values and the reason for which it may; a difference without a reason is a bug of ours. Reasons go by what the file asks
for, not by its name, so that they apply to files that were not recorded; for users they are in docs/compatibility.md. Used by
`tests/integration/test_golden_specs.py` and by `make golden`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from support.golden_records import differences, without_hash, without_version

Json = dict[str, Any]

REJECTED: Final = {
    "34-invalid-duplicate-groups": "spec.workerGroupSpecs",
    "35-invalid-min-above-max": "spec.workerGroupSpecs[0].minReplicas",
    "36-invalid-name": "metadata.name",
    "39-invalid-group-idle-without-v2": "workerGroupSpecs[].idleTimeoutSeconds",
    "40-invalid-labels-param": "spec.workerGroupSpecs[0].rayStartParams",
}
"""Rejected by the API server already, and the field it names: the CRD's rules are KubeRay's, so that no webhook is needed.

KubeRay accepts 34 and lets both groups share their pods; we do not. A create names the second of the two groups, a
server-side apply the list: it cannot merge it.
"""

FEATURES: Final = {
    r"metadata\.annotations\[ray\.io/ippr\]": "resizing in place",
    r"spec\.headGroupSpec\.(enableIngress|ingressOptions)": "ingress",
    r"spec\.upgradeStrategy\.type": "upgrade",
    r"metadata\.annotations\[ray\.io/enable-serve-service\]": "serve service",
    r"spec\.networkPolicy": "network policy",
    r"metadata\.(labels|annotations)\[(ray\.io/(gang|priority)-|volcano|yunikorn|kai\.).*\]": "batch scheduling",
}
"""To which feature that is not built yet a field named in the condition `Unsupported` belongs."""

RAY_CONTAINER = "<Ray container>"
"""Stands in a pattern for a name that the file chooses."""
REDIS_FINALIZER: Final = "ray.io/gcs-ft-redis-cleanup-finalizer"
HOSTS_ANNOTATION: Final = "raytide.io/num-of-hosts"
SIDECAR: Final = r"Pod head/[^.]*\.spec\.containers\.autoscaler"
V2_ENV: Final = "RAY_enable_autoscaler_v2"
LACKING: Final = {
    "resizing in place": (),
    "ingress": (r"Ingress .*", r"event CreatedIngress"),
    "upgrade": (),
    "serve service": (r"Service .*-serve-svc",),
    "network policy": (r"NetworkPolicy .*",),
    "batch scheduling": (r"PodGroup .*",),
}
"""What may differ while the feature is not built: only what it would have made."""


@dataclass(frozen=True)
class Fate:
    """What became of one file: its RayCluster as written, both records, and Raytide's messages."""

    spec: Json
    recorded: Json
    ours: Json
    unsupported: Sequence[str] = ()
    """The fields that our condition `Unsupported` names."""
    mode: str = "raytide"
    """Whose autoscaler the install runs by default."""

    @property
    def groups(self) -> list[Json]:
        """Its worker groups as written."""
        return self.spec.get("spec", {}).get("workerGroupSpecs") or []

    @property
    def ray_container(self) -> str:
        """The name of the head's container that runs Ray."""
        name: str = self.spec["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["name"]
        return name

    @property
    def has_our_autoscaler(self) -> bool:
        """Raytide's autoscaler runs if the file has no image, no command, not V1, and no Ray that is too old."""
        spec = self.spec["spec"]
        options = spec.get("autoscalerOptions") or {}
        env = spec["headGroupSpec"]["template"]["spec"]["containers"][0].get("env", ())
        is_v1 = options.get("version") == "v1" or {"name": V2_ENV, "value": "0"} in env
        is_own = any(options.get(field) for field in ("image", "command", "args")) or is_v1 or self.has_old_ray
        return bool(spec.get("enableInTreeAutoscaling")) and self.mode == "raytide" and not is_own

    @property
    def has_projected_token(self) -> bool:
        """The autoscaler that the file chooses, unless Ray's is configured as the default."""
        return bool(self.spec["spec"].get("enableInTreeAutoscaling")) and self.mode == "raytide"

    @property
    def has_old_ray(self) -> bool:
        """Whether it names a Ray before 2.47, with which our autoscaler is not tested."""
        numbers = re.match(r"v?(\d+)\.(\d+)", str(self.spec["spec"].get("rayVersion", "")))
        return numbers is not None and (int(numbers[1]), int(numbers[2])) < (2, 47)

    @property
    def is_recorded_as_invalid(self) -> bool:
        """KubeRay accepted it and then reported it as invalid."""
        return any(reason.startswith("Invalid") for _, reason, _ in self.recorded["events"])

    @property
    def rejection(self) -> str:
        """The error of the API server for the RayCluster; empty if it was accepted."""
        answers = (error for kind, _, code, error in self.ours["applied"] if kind == "RayCluster" and code)
        return next(answers, "")


@dataclass(frozen=True)
class Difference:
    """One place where the records differ, and why they may; without a reason they may not."""

    place: str
    recorded: Any
    ours: Any
    reason: str = ""


@dataclass(frozen=True)
class Known:
    """A difference that is meant: where it is, and for which files."""

    reason: str
    places: str
    holds_for: Callable[[Fate, str], bool]


def _is_rejected_earlier(fate: Fate, _place: str) -> bool:
    names_a_field = re.search(r"spec\.|workerGroupSpecs|metadata\.name|metadata\.annotations", fate.rejection)
    wanted = REJECTED.get(fate.recorded["file"], "")
    return (
        bool(names_a_field) and wanted in fate.rejection and (fate.is_recorded_as_invalid or _has_one_name_twice(fate))
    )


def _has_one_name_twice(fate: Fate) -> bool:
    names = [group["groupName"] for group in fate.groups]
    return len(names) > len(set(names))


def _is_cut(fate: Fate, place: str) -> bool:
    group = place.removeprefix("Pod worker/").rpartition("/")[0]
    return len(f"{fate.spec['metadata']['name']}-{group}") > 50


def _has_missing_workers(fate: Fate, _place: str) -> bool:
    status = next(iter(fate.recorded["status"].values()), {})
    return status.get("readyWorkerReplicas", 0) < status.get("desiredWorkerReplicas", 0)


def _has_empty_suspended_group(fate: Fate, _place: str) -> bool:
    return any(group.get("suspend") for group in fate.groups)


def _is_suspended_without_pods(fate: Fate, _place: str) -> bool:
    return fate.spec["spec"].get("suspend") is True and not any(
        kind.startswith("Pod ") for kind in fate.ours["objects"]
    )


def _names_workers_to_delete(fate: Fate, _place: str) -> bool:
    return any((group.get("scaleStrategy") or {}).get("workersToDelete") for group in fate.groups)


def _has_host_labels(fate: Fate, place: str) -> bool:
    """A host of a multi-host group without other differences from KubeRay's."""
    pod = place.partition(".metadata.annotations")[0]
    group = pod.removeprefix("Pod worker/").rpartition("/")[0]
    theirs, ours = (
        record["objects"].get(pod, {}).get("metadata", {}).get("annotations", {})
        for record in (fate.recorded, fate.ours)
    )
    has_hosts = any(each["groupName"] == group and (each.get("numOfHosts") or 1) > 1 for each in fate.groups)
    return has_hosts and ours.keys() - theirs.keys() == {HOSTS_ANNOTATION} and theirs.items() <= ours.items()


def _is_narrower(fate: Fate, place: str) -> bool:
    """Everything that our role allows, KubeRay's allows too, but for listing events and following its own RayCluster."""
    key = place.removesuffix(".rules")
    theirs, ours = (_granted(record["objects"].get(key, {})) for record in (fate.recorded, fate.ours))
    ours -= {("", "events", "list", False), *(("ray.io", "rayclusters", verb, True) for verb in ("list", "watch"))}
    return bool(ours) and ours < theirs | {(group, resource, verb, True) for group, resource, verb, _ in theirs}


def _granted(role: Json) -> set[tuple[str, str, str, bool]]:
    return {
        (group, resource, verb, "resourceNames" in rule)
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _has_our_autoscaler(fate: Fate, _place: str) -> bool:
    return fate.has_our_autoscaler


def _leaves_the_version_open(fate: Fate, _place: str) -> bool:
    return fate.has_our_autoscaler and not (fate.spec["spec"].get("autoscalerOptions") or {}).get("version")


def _has_an_account_of_ours(fate: Fate, _place: str) -> bool:
    head = fate.spec["spec"]["headGroupSpec"]["template"]["spec"]
    return fate.has_projected_token and "serviceAccountName" not in head


def _has_projected_token(fate: Fate, _place: str) -> bool:
    return fate.has_projected_token


def _has_clamped_replicas(fate: Fate, _place: str) -> bool:
    counts = (
        (each.get("replicas") or 0, each.get("minReplicas", 0), each.get("maxReplicas", 0)) for each in fate.groups
    )
    return any(replicas and not low <= replicas <= high for replicas, low, high in counts)


def _counts_its_finalizer(fate: Fate, _place: str) -> bool:
    """One generation more: KubeRay writes the finalizer with the whole object, and its defaults of the spec."""
    theirs, ours = (
        [status.get("observedGeneration", 0) for status in record["status"].values()]
        for record in (fate.recorded, fate.ours)
    )
    has_finalizer = any(REDIS_FINALIZER in each for each in fate.ours["finalizers"].values())
    return has_finalizer and theirs == [generation + 1 for generation in ours]


def _has_no_workers(fate: Fate, place: str) -> bool:
    """The number is 0, and it is missing in the recording."""
    name = place.rpartition(" ")[2]
    theirs, ours = (list(record["status"].values()) for record in (fate.recorded, fate.ours))
    return len(theirs) == len(ours) and all(
        (name not in one and other.get(name) == 0) or one.get(name) == other.get(name)
        for one, other in zip(theirs, ours, strict=True)
    )


KNOWN: Final = (
    Known(
        "a number of workers that is 0 is written, so that the columns of kubectl are not empty; KubeRay omits it",
        r"status (desiredWorkerReplicas|availableWorkerReplicas|readyWorkerReplicas)",
        _has_no_workers,
    ),
    Known(
        "the autoscaler may write to its own RayCluster only (SC:S10), follow it, and list the events that explain why a pod does"
        " not start (FD:AS-A16)",
        r"Role .*\.rules",
        _is_narrower,
    ),
    Known(
        "Raytide's autoscaler runs in the head pod: its image, command, probe and restrictions",
        rf"{SIDECAR}\.(image|command|args|livenessProbe|securityContext|env\.KUBERAY_GEN_AUTOSCALER_START_CMD\.value)",
        _has_our_autoscaler,
    ),
    Known(
        "our own autoscaler learns which operator runs it, where the GCS listens, and its port if envFrom might have another",
        rf"{SIDECAR}\.env\.RAYTIDE_(OPERATOR_VERSION|GCS_ADDRESS|AUTOSCALER_HEALTH_PORT)",
        _has_our_autoscaler,
    ),
    Known(
        "our own autoscaler is a native sidecar where the pod restarts no container (D27)",
        rf"{SIDECAR}\.restartPolicy",
        _has_our_autoscaler,
    ),
    Known(
        "the API token is for the autoscaler alone, not for Ray and its users' code",
        rf"{SIDECAR}\.volumeMounts(\.autoscaler-token)?|Pod head/.*\.spec\.volumes\.autoscaler-token",
        _has_projected_token,
    ),
    Known(
        "the API token is for the autoscaler alone, not for Ray and its users' code",
        r"Pod head/.*\.spec\.automountServiceAccountToken",
        _has_an_account_of_ours,
    ),
    Known(
        "Raytide's autoscaler uses V2, which is set for Ray because its image may be older than its rayVersion",
        rf"Pod head/[^.]*\.spec\.containers\.[^.]*\.env\.{V2_ENV}",
        _leaves_the_version_open,
    ),
    Known(
        "a host has the number of hosts of its replica, so that a change of numOfHosts can be detected",
        r"Pod worker/.*\.metadata\.annotations(\.raytide\.io/num-of-hosts)?",
        _has_host_labels,
    ),
    Known("the API server rejects it at once and names the field; KubeRay takes it", r".*", _is_rejected_earlier),
    Known(
        "a condition of ours: says at the object what is wrong",
        r"status conditions\.Invalid",
        lambda fate, _: fate.is_recorded_as_invalid,
    ),
    Known(
        "a condition and a field of ours: say which workers are missing, and why (SC:S21)",
        r"status (conditions\.WorkersMissing|diagnoses)",
        _has_missing_workers,
    ),
    Known(
        "a warning of ours: says which workers are missing, and why, as the condition does (SC:S21)",
        r"event WorkersMissing",
        _has_missing_workers,
    ),
    Known(
        "KubeRay calls a cluster provisioned (AllPodRunningAndReadyFirstTime) as soon as the pods that are there run, however"
        " many are wanted (FD:RC-B20)",
        r"status conditions\.RayClusterProvisioned\.(status|reason)",
        _has_missing_workers,
    ),
    Known(
        "KubeRay cuts the names of long groups to one prefix; Raytide distinguishes them by a hash (D15)",
        r"Pod worker/.*\.metadata\.name",
        lambda fate, place: _is_cut(fate, place.removesuffix(".metadata.name")),
    ),
    Known(
        "KubeRay records an event for deleting a suspended group that had no pods",
        r"event DeletedWorkerPod",
        _has_empty_suspended_group,
    ),
    Known(
        "KubeRay records an event for deleting the pods of a suspended cluster that had none",
        r"event DeletedPod",
        _is_suspended_without_pods,
    ),
    Known(
        "a name that is no worker of the group is reported (RM:I5)",
        r"event InvalidRayClusterSpec",
        _names_workers_to_delete,
    ),
    Known(
        "the write of the finalizer is no new generation: it changes nothing of the spec",
        r"status observedGeneration",
        _counts_its_finalizer,
    ),
    Known(
        "a condition of ours: names the fields that have no effect yet",
        r"status conditions\.Unsupported",
        lambda fate, _: bool(fate.unsupported),
    ),
    Known(
        "an event of ours: Ray's autoscaler runs, because ours is not tested with so old a Ray (FD:RC-B6)",
        r"event UsingRayAutoscaler",
        lambda fate, _: fate.has_old_ray and bool(fate.spec["spec"].get("enableInTreeAutoscaling")),
    ),
    Known(
        "a warning of ours: a group gets another number of replicas than it asks for (FD:RC-B13)",
        r"event ReplicasClamped",
        _has_clamped_replicas,
    ),
    Known(
        "a warning of ours: names a field that has no effect yet (FD:RC-B3)",
        r"event UnsupportedField",
        lambda fate, _: bool(fate.unsupported),
    ),
)
"""Every difference that is no missing feature, with its reason."""


def fields_without_effect(status: Json) -> tuple[str, ...]:
    """The fields that a status names in the condition `Unsupported`."""
    conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
    message = conditions.get("Unsupported", {}).get("message", "")
    return tuple(sentence.rpartition(": ")[0] for sentence in message.split("; ") if sentence)


def compare(fate: Fate) -> list[Difference]:
    """Every difference, in the order of places."""
    found = {**_in_answers(fate), **_in_objects(fate), **_in_status(fate), **_in_events(fate)}
    return [Difference(place, *both, reason_for(fate, place)) for place, both in sorted(found.items())]


def reason_for(fate: Fate, place: str) -> str:
    """Why this place may differ for this file; empty if there is no reason."""
    for known in KNOWN:
        if re.fullmatch(known.places, place) and known.holds_for(fate, place):
            return known.reason
    return next((f"not built yet: {feature}" for feature in lacking(fate) if _is_made_by(feature, fate, place)), "")


def lacking(fate: Fate) -> list[str]:
    """The features of the file that are not built, as the condition `Unsupported` names their fields."""
    features = (
        feature for field in fate.unsupported for pattern, feature in FEATURES.items() if re.fullmatch(pattern, field)
    )
    return list(dict.fromkeys(features))


def _is_made_by(feature: str, fate: Fate, place: str) -> bool:
    chosen = {RAY_CONTAINER: re.escape(fate.ray_container)}
    return any(re.fullmatch(_with_names(pattern, chosen), place) for pattern in LACKING[feature])


def _with_names(pattern: str, chosen: Mapping[str, str]) -> str:
    for stand_in, names in chosen.items():
        pattern = pattern.replace(stand_in, names)
    return pattern


Places = dict[str, tuple[Any, Any]]


def _in_answers(fate: Fate) -> Places:
    return {
        f"applied {kind} {name}": (error or "taken", our_error or "taken")
        for (kind, name, code, error), (*_, our_code, our_error) in zip(
            fate.recorded["applied"], fate.ours["applied"], strict=True
        )
        if bool(code) != bool(our_code)
    }


def _in_objects(fate: Fate) -> Places:
    return differences(_comparable_objects(fate.recorded), _comparable_objects(fate.ours))


def _comparable_objects(record: Json) -> dict[str, Json]:
    return {key: _beside_ray(without_hash(without_version(manifest))) for key, manifest in record["objects"].items()}


def _beside_ray(manifest: Json) -> Json:
    """With a native sidecar of the name `autoscaler` among the containers, to compare it with KubeRay's."""
    spec = manifest.get("spec") or {}
    native = [each for each in spec.get("initContainers") or () if each["name"] == "autoscaler"]
    if not native:
        return manifest
    others = [each for each in spec["initContainers"] if each["name"] != "autoscaler"]
    rest = {key: value for key, value in spec.items() if key != "initContainers"}
    containers = [*spec["containers"], *native]
    return {**manifest, "spec": {**rest, "containers": containers, **({"initContainers": others} if others else {})}}


def _in_status(fate: Fate) -> Places:
    found: Places = {}
    for name in sorted(fate.recorded["status"].keys() | fate.ours["status"].keys()):
        both = [_comparable_status(record["status"].get(name, {})) for record in (fate.recorded, fate.ours)]
        found |= {f"status {path}": values for path, values in differences(*both).items()}
        found |= _in_order_of_conditions(*(record["status"].get(name, {}) for record in (fate.recorded, fate.ours)))
        finalizers = [record["finalizers"].get(name, []) for record in (fate.recorded, fate.ours)]
        found |= {"finalizers": tuple(finalizers)} if finalizers[0] != finalizers[1] else {}
    return found


def _in_order_of_conditions(*statuses: Json) -> Places:
    kinds = [[condition["type"] for condition in status.get("conditions", ())] for status in statuses]
    recorded, ours = ([kind for kind in listed if kind in kinds[0] and kind in kinds[1]] for listed in kinds)
    return {} if recorded == ours else {"status order of conditions": (recorded, ours)}


def _comparable_status(status: Mapping[str, Any]) -> Json:
    """Conditions by type; node ports are drawn by the API server."""
    ports = {name: "drawn" if _is_drawn(port) else port for name, port in (status.get("endpoints") or {}).items()}
    conditions = [{**condition, "name": condition["type"]} for condition in status.get("conditions", ())]
    return {**status, "endpoints": ports, "conditions": {each["name"]: each for each in conditions}}


def _is_drawn(port: str) -> bool:
    return port.isdecimal() and 30000 <= int(port) <= 32767


def _in_events(fate: Fate) -> Places:
    theirs, ours = ({(kind, reason) for kind, reason, _ in record["events"]} for record in (fate.recorded, fate.ours))
    return dict(_one_sided(theirs, ours))


def _one_sided(theirs: set[tuple[str, str]], ours: set[tuple[str, str]]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for kind, reason in theirs ^ ours:
        yield f"event {reason}", (kind, None) if (kind, reason) in theirs else (None, kind)
