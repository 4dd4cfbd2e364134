"""Objects that one tenant can store and that must not affect others, each under a description.

Most are rejected by today's CRDs; they stand for what an older CRD let in, and for what the API server lets in all the same.
Used by the integration test that lives beside them and by the bench of the operator's memory.
"""

from typing import Any, NamedTuple

from support.builders import group, raycluster, template
from support.training_builders import trainingjob

HUGE = 2_147_483_647
NAMESPACE = "hostile"
Json = dict[str, Any]


class Hostile(NamedTuple):
    """The stored object, and a part of the message to its user; empty if it is valid."""

    objects: list[Json]
    message: str = ""


def of_groups(*groups: Json, **spec: Any) -> list[Json]:
    return [raycluster(*groups, name="bad", namespace=NAMESPACE, uid="", **spec)]


def groups(number: int, **fields: Any) -> list[Json]:
    small = {"spec": {"containers": [{"name": "w", "image": "r"}]}}
    return [
        {"groupName": f"g{n}", "maxReplicas": HUGE, "minReplicas": 0, "template": small, **fields}
        for n in range(number)
    ]


def one(**fields: Any) -> list[Json]:
    return of_groups({**group(replicas=2, high=HUGE), **fields})


def in_template(count: int = 2, **container: Any) -> list[Json]:
    found = template("w")
    found["spec"]["containers"][0].update(container)
    return of_groups({**group(replicas=count, high=HUGE), "template": found})


def job(name: str = "bad", status: Json | None = None, annotations: Json | None = None, **spec: Any) -> list[Json]:
    obj = trainingjob(name=name, namespace=NAMESPACE, uid="", **spec)
    obj["metadata"]["annotations"] = annotations or {}
    return [{**obj, **({"status": status} if status else {})}]


def suspended_jobs() -> list[Json]:
    big = {
        "spec": {
            "containers": [{"name": "trainer", "env": [{"name": f"V{n}", "value": "x" * 30} for n in range(20_000)]}]
        }
    }
    return [obj for n in range(20) for obj in job(f"bad-{n}", suspend=True, trainer={"template": big})]


def nested(depth: int) -> Json:
    found: Json = {}
    for _ in range(depth):
        found = {"a": found}
    return found


BOUNDS = {"min-instance": HUGE, "max-instance": HUGE}
HOSTILE: dict[str, Hostile] = {
    # --- of the finding
    "two thousand million parameter servers": Hostile(job(pserver=BOUNDS), "spec.pserver.min-instance is 2147483647"),
    "a million parameter servers": Hostile(
        job(pserver={"min-instance": 10**6}), "spec.pserver.min-instance is 1000000"
    ),
    "two thousand million trainers ordered by kubectl scale": Hostile(
        job(low=1, high=2, trainer={"replicas": HUGE}), "spec.trainer.replicas is 2147483647"
    ),
    "a huge maximum with another job below its minimum": Hostile(
        [*job(low=1, high=HUGE, trainer={"replicas": HUGE}), *job("below", low=3, high=3, startPolicy="Gang")],
        "spec.trainer.max-instance is 2147483647",
    ),
    "5,000 ports": Hostile(job(ports_num=5_000, low=600, high=600), "spec.ports_num is 5000"),
    "20,000 ports": Hostile(job(ports_num=20_000, low=600, high=600), "spec.ports_num is 20000"),
    "300 groups of 600 replicas": Hostile(of_groups(*groups(300, replicas=600))),
    "500 groups of 600 replicas": Hostile(of_groups(*groups(500, replicas=600)), "has more than 300 entries"),
    "1,000 groups of 600 replicas": Hostile(of_groups(*groups(1000, replicas=600)), "has more than 300 entries"),
    "20 suspended jobs with big templates": Hostile(suspended_jobs()),
    "10,000 unknown names in workersToDelete": Hostile(
        one(scaleStrategy={"workersToDelete": [f"junk-{n}" for n in range(10_000)]}), "and 9997 more;"
    ),
    # --- RayClusters
    "two thousand million replicas": Hostile(one(replicas=HUGE), "spec.workerGroupSpecs[0].replicas is 2147483647"),
    "a minimum of two thousand million": Hostile(one(minReplicas=HUGE), "spec.workerGroupSpecs[0].minReplicas is"),
    "two thousand million hosts": Hostile(one(numOfHosts=HUGE), "spec.workerGroupSpecs[0].numOfHosts is"),
    "300 groups of everything at most": Hostile(
        of_groups(*groups(300, replicas=HUGE, minReplicas=HUGE, numOfHosts=HUGE)), "numOfHosts is 2147483647"
    ),
    "10,000 small groups": Hostile(of_groups(*groups(10_000, replicas=1)), "has more than 300 entries"),
    "300 groups of one name": Hostile(
        of_groups(*groups(300, groupName="same", replicas=5)), "is the name of 300 groups"
    ),
    "one variable of half a megabyte in 600 pods": Hostile(
        in_template(600, env=[{"name": "A", "value": "x" * 500_000}])
    ),
    "10,000 variables in 600 pods": Hostile(
        in_template(600, env=[{"name": f"A{n}", "value": "1"} for n in range(10_000)])
    ),
    "3,000 containers": Hostile(
        of_groups(
            {**group(), "template": {"spec": {"containers": [{"name": f"c{n}", "image": "i"} for n in range(3000)]}}}
        )
    ),
    "20,000 volumes": Hostile(
        of_groups(
            {**group(), "template": template("w", volumes=[{"name": f"v{n}", "emptyDir": {}} for n in range(20_000)])}
        )
    ),
    "20,000 labels that are none": Hostile(
        one(labels={f"-bad {n}": "y" for n in range(20_000)}), "has more violations"
    ),
    "20,000 parameters of ray start": Hostile(one(rayStartParams={f"p{n}": "1" for n in range(20_000)})),
    "100,000 names in workersToDelete": Hostile(
        one(scaleStrategy={"workersToDelete": [f"j{n}" for n in range(100_000)]}), "has more than 10000 entries"
    ),
    "a name of a megabyte in workersToDelete": Hostile(
        one(scaleStrategy={"workersToDelete": ["x" * 1_000_000]}), "has names that are not workers of the group"
    ),
    "20,000 numbers where names belong": Hostile(
        one(scaleStrategy={"workersToDelete": list(range(20_000))}), "workersToDelete[0]"
    ),
    "a quantity of 100,000 digits": Hostile(in_template(resources={"requests": {"cpu": "9" * 100_000}})),
    "a quantity with a huge exponent": Hostile(in_template(resources={"requests": {"memory": "1e999999999"}})),
    "objects 300 deep": Hostile(of_groups({**group(), "template": template("w", securityContext=nested(300))})),
    "line breaks in a group's name": Hostile(one(groupName="a\nlevel=ERROR logger=forged")),
    # --- TrainingJobs
    "everything of a job at most": Hostile(
        job(
            trainer=BOUNDS,
            pserver=BOUNDS,
            ports_num=HUGE,
            ports_num_for_sparse=HUGE,
            scaling={"step": HUGE},
            backoffLimit=HUGE,
        ),
        "spec.trainer.min-instance is 2147483647",
    ),
    "100,000 allowed sizes": Hostile(
        job(low=1, high=3_000, scaling={"allowedSizes": list(range(1, 100_001))}), "has more than 1000 entries"
    ),
    "10,000 tolerations": Hostile(
        job(trainer={"tolerations": [{"key": f"key-{n}", "operator": "Exists"} for n in range(10_000)]}),
        "bytes of scheduling fields",
    ),
    "20,000 variables of a job's 600 pods": Hostile(
        job(low=600, high=600, trainer={"env": [{"name": f"A{n}", "value": "1"} for n in range(20_000)]})
    ),
    "a status that names the same indices again and again": Hostile(
        job(status={"trainer": {"failedIndexes": ",".join(["0-99999"] * 10_000)}})
    ),
    "5,000 conditions": Hostile(
        job(status={"conditions": [{"type": f"T{n}", "status": "True", "message": "m" * 50} for n in range(5_000)]})
    ),
    "a record that is 250 KB of junk": Hostile(job(annotations={"raytide.io/sharing": "[" * 250_000})),
    "a job's quantity with a huge exponent": Hostile(
        job(trainer={"resources": {"requests": {"cpu": "1e999999999", "memory": "9" * 100_000}}})
    ),
}
