"""The largest object of each kind that an API server stores and that costs most in one way, each under a description.

`make(n)` gives the n-th one, which shares no text with the others. For what is kept of them (tests of the decoders) and for a
hundred of each beside a healthy tenant (integration test). SECURITY.md has the bounds.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from raytide.api.constants import CLUSTER_LABEL, HEAD, IDENTIFIER_LABEL, NODE_TYPE_LABEL, head_identifier
from raytide.api.trainingjob_constants import JOB_LABEL
from support.hostile_objects import NAMESPACE

Json = dict[str, Any]


def head_labels(n: int) -> Json:
    cluster = f"c{n}"
    return {CLUSTER_LABEL: cluster, NODE_TYPE_LABEL: HEAD, IDENTIFIER_LABEL: head_identifier(cluster)}


class Worst(NamedTuple):
    """The plural of its kind, and the n-th object."""

    plural: str
    make: Callable[[int], Json]


def words(count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["".join(each) for each in itertools.islice(itertools.product(letters, repeat=4), count)]


MANY: Final = words(180_000)


def pod(n: int, *, containers: list[Json] | None = None, metadata: Json | None = None, **spec: Any) -> Json:
    """A pending pod that requests a CPU."""
    own = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": NAMESPACE, "name": f"p{n}", **(metadata or {})},
        "spec": {"containers": containers or own, **spec},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        },
    }


def affinity(requirements: Iterable[Json]) -> Json:
    terms = [{"matchExpressions": list(requirements)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def host_in(*values: str) -> Json:
    return {"key": "kubernetes.io/hostname", "operator": "In", "values": list(values)}


def resources(n: int, count: int) -> Json:
    return {"limits": {"cpu": "1", **{f"a.b/{n}x{k}": "1" for k in range(count)}}}


def each_with_its_own(n: int, count: int) -> list[Json]:
    return [{"name": f"c{k}", "image": "i", "resources": {"limits": {f"a.b/{n}x{k}": "1"}}} for k in range(count)]


def job(n: int, *, template: Json | None = None, **trainer: Any) -> Json:
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"namespace": NAMESPACE, "name": f"j{n}"},
        "spec": {
            "image": "i",
            "trainer": {
                "entrypoint": "x",
                "min-instance": 1,
                "max-instance": 4,
                "resources": {"requests": {"cpu": f"{1000 + n}m"}},
                **({"template": {"spec": template}} if template else {}),
                **trainer,
            },
        },
    }


def node(n: int, *, labels: Json | None = None, allocatable: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"worst-{n}", "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "1", **(allocatable or {})}},
    }


def quota(n: int, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"namespace": NAMESPACE, "name": f"q{n}"},
        "spec": spec,
    }


def classes(n: int, count: int) -> Json:
    names = [f"{n}-{each}" for each in MANY[:count]]
    return {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": names}]}


TOO_LARGE_PODS: dict[str, Callable[[int], Json]] = {
    "values of an affinity": lambda n: pod(n, affinity=affinity([host_in(f"x{n}", *MANY)])),
    "requirements of an affinity": lambda n: pod(n, affinity=affinity(host_in(f"x{n}-{k}") for k in range(12_000))),
    "a value of a megabyte": lambda n: pod(n, affinity=affinity([host_in(str(n) + "x" * 1_000_000)])),
    "a selector": lambda n: pod(n, nodeSelector={f"key-{n}-{k}": "v" for k in range(50_000)}),
    "tolerations": lambda n: pod(n, tolerations=[{"key": f"key-{n}-{k}"} for k in range(40_000)]),
    "resources": lambda n: pod(n, containers=[{"name": "c", "image": "i", "resources": resources(n, 50_000)}]),
    "containers": lambda n: pod(n, containers=each_with_its_own(n, 12_000)),
    "init containers": lambda n: pod(
        n, initContainers=[{**each, "restartPolicy": "Always"} for each in each_with_its_own(n, 10_000)]
    ),
}
"""A pod with more than is kept of one: it matches no node."""


def terms(number: int) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}] * number}}}


def many_amounts(n: int, count: int) -> list[Json]:
    amounts = {f"a.b/{n}x{k}": "1" for k in range(64)}
    each = {"limits": amounts, "requests": amounts}
    return [{"name": f"c{k}", "image": "i", "resources": each} for k in range(count)]


TOO_LARGE_PODS |= {
    "empty terms of an affinity": lambda n: pod(n, affinity=terms(350_000)),
    "amounts": lambda n: pod(n, containers=many_amounts(n, 256), initContainers=many_amounts(n, 200)),
    "just enough values, and one more": lambda n: pod(n, affinity=affinity([host_in(f"x{n}", *MANY[:1_001])])),
}


def on_ports(*ports: int) -> list[Json]:
    return [{"name": "trainer", "image": "i", "ports": [{"containerPort": port, "hostPort": port} for port in ports]}]


LARGE_PODS: Final = {
    "host ports": lambda n: pod(n, containers=on_ports(*range(1 + n, 25_000 + n))),
    "as many values as are kept": lambda n: pod(n, affinity=affinity([host_in(f"x{n}", *MANY[:999])])),
    "as many characters as are kept": lambda n: pod(n, nodeSelector={f"k{n}": "x" * 32_000}),
    "the uid of an owner": lambda n: pod(
        n, metadata={"ownerReferences": [{"uid": f"{n}" + "u" * 900_000, "controller": True}]}
    ),
    "labels": lambda n: pod(n, metadata={"labels": {f"l{n}-{k}": "v" * 60 for k in range(15_000)}}),
    "annotations": lambda n: pod(n, metadata={"annotations": {"a": f"{n}" + "\u202e" * 80_000}}),
    "gates": lambda n: pod(n, schedulingGates=[{"name": f"g{n}-{k}"} for k in range(40_000)]),
}
LARGE_NODES: Final = {
    "labels of a node": lambda n: node(n, labels={f"l{n}-{k}": "v" * 60 for k in range(15_000)}),
    "taints of a node": lambda n: node(n, taints=[{"key": f"t{n}-{k}", "effect": "NoSchedule"} for k in range(25_000)]),
    "resources of a node": lambda n: node(n, allocatable={f"a.b/{n}x{k}": "1" for k in range(50_000)}),
}
QUOTAS: Final = {
    "resources of a quota": lambda n: quota(n, hard={f"requests.a.b/{n}x{k}": "1" for k in range(40_000)}),
    "classes of a quota": lambda n: quota(n, hard={"pods": "1"}, scopeSelector=classes(n, 100_000)),
}
JOBS: Final = {
    "resources of a job": lambda n: job(n, resources=resources(n, 700)),
    "selectors of a job": lambda n: job(n, template={"nodeSelector": {f"k{n}x{k}": "v" for k in range(300)}}),
    "an affinity of a job": lambda n: job(n, template={"affinity": affinity([host_in(f"x{n}", *MANY[:2_000])])}),
    "requests that no other job has": job,
    "a host port that no other job has": lambda n: job(n, template={"containers": on_ports(1 + n)}),
}


def labelled(n: int, kind: str, labels: Json, **more: Any) -> Json:
    """An object with the label of a RayCluster or job that need not exist."""
    metadata = {"namespace": NAMESPACE, "name": f"labelled-{n}", "labels": labels}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}


def service_ports(n: int) -> list[Json]:
    return [{"name": f"p{n}-{k}", "port": 1 + k} for k in range(25_000)]


SERVICES: Final = {
    "ports of a head service": lambda n: labelled(n, "Service", head_labels(n), spec={"ports": service_ports(n)}),
    "selector of a head service": lambda n: labelled(
        n, "Service", head_labels(n), spec={"selector": {f"k{n}-{k}": "v" * 60 for k in range(12_000)}}
    ),
}
CONFIG_MAPS: Final = {
    "texts of a membership": lambda n: labelled(
        n, "ConfigMap", {JOB_LABEL: "j"}, data={"trainers": f"{n}" + "x" * 1_000_000}
    ),
    "names of a membership": lambda n: labelled(
        n, "ConfigMap", {JOB_LABEL: "j"}, data={f"{n}-{k}": "x" for k in range(50_000)}
    ),
}
WORST: Final[dict[str, Worst]] = {
    **{f"pods: {name}": Worst("pods", make) for name, make in {**TOO_LARGE_PODS, **LARGE_PODS}.items()},
    **{f"nodes: {name}": Worst("nodes", make) for name, make in LARGE_NODES.items()},
    **{f"quotas: {name}": Worst("resourcequotas", make) for name, make in QUOTAS.items()},
    **{f"services: {name}": Worst("services", make) for name, make in SERVICES.items()},
    **{f"configmaps: {name}": Worst("configmaps", make) for name, make in CONFIG_MAPS.items()},
    **{f"jobs: {name}": Worst("trainingjobs.paddlepaddle.org", make) for name, make in JOBS.items()},
}
