"""The TrainingJob CRD: its names, fields, columns; that it loses nothing; that it agrees with the operator (TJ §2.1, §8)."""

import copy
import json
from pathlib import Path

import pytest
import yaml

import crds
from raytide.api.trainingjob import (
    PaddleAnnotations,
    PserverSpec,
    RoleSpec,
    ScalingSpec,
    TrainerSpec,
    TrainingJob,
    TrainingJobSpec,
)
from raytide.trainingjob.validation import unsupported, violations
from raytide_sandbox.apiserver.schema import compile_schema
from support.job_world import JobWorld, merged
from support.training_builders import changed_seed

ROOT = Path(__file__).parents[3]
NAME = "paddlepaddle.org_trainingjobs.yaml"
CRD = yaml.load((ROOT / "crds" / NAME).read_text(), Loader=yaml.CSafeLoader)
(V1,) = CRD["spec"]["versions"]
SCHEMA = V1["schema"]["openAPIV3Schema"]
SEED = yaml.safe_load((ROOT / "samples" / "trainingjob-seed.yaml").read_text())
HUGE = 2_147_483_647
STRUCTURAL = compile_schema(SCHEMA)


def at(path):
    node = SCHEMA
    for step in path.split("."):
        node = node["properties"][step]
    return node


# --- what it is ------------------------------------------------------------------------------------------------------------


def test_plain_kubectl_apply_can_store_it():
    assert crds.faults_of_size(NAME, CRD) == []


def test_names_and_subresources():
    spec = CRD["spec"]
    assert CRD["metadata"]["name"] == "trainingjobs.paddlepaddle.org"
    assert (spec["group"], spec["scope"]) == ("paddlepaddle.org", "Namespaced")
    names = spec["names"]
    assert (names["kind"], names["plural"], names["shortNames"], names["categories"]) == (
        "TrainingJob",
        "trainingjobs",
        ["tj"],
        ["all"],
    )
    assert (V1["name"], V1["served"], V1["storage"]) == ("v1", True, True)
    assert V1["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.trainer.replicas",
            "statusReplicasPath": ".status.trainer.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


@pytest.mark.rule("TJ:7-21")
def test_printer_columns():
    columns = [(c["name"], c["type"], c["jsonPath"], c.get("priority", 0)) for c in V1["additionalPrinterColumns"]]
    assert columns == list(crds.TRAININGJOB_COLUMNS)
    assert [name for name, *_, priority in columns if not priority] == [
        "Min",
        "Max",
        "Current",
        "Score",
        "Phase",
        "Waiting",
        "Age",
    ]


FIELDS = {
    "spec": "VolumeMounts activeDeadlineSeconds annotations backoffLimit faultTolerant fault_tolerant frame_work framework "
    "hostNetwork host_network image imagePullPolicy imagePullSecrets is_nccl local_job master matrix maxFailedPercent "
    "mountPath mountpath namespace nfsmount passes pendingTimeoutSeconds podGroupName port portsNum portsNumForSparse "
    "ports_num ports_num_for_sparse priorityClassName pserver restartPolicy scaling schedulerName startPolicy "
    "successPolicy suspend trainer trainer_port trainer_ports_num ttlSecondsAfterFinished volumeMounts volumes",
    "spec.annotations": "priority scheduler usergroupid userid walltime",
    "spec.frame_work": "name type",
    "spec.scaling": "accounting allowedSizes enabled growCooldownSeconds minRuntimeSeconds rebalance "
    "shrinkCooldownSeconds step yieldToPods",
    "spec.master": "entrypoint env envs etcd-endpoint gracePeriodSeconds grace_period_seconds imagePullSecrets "
    "index_succeed livenessProbe liveness_probe nodeSelector node_selector preStopCmd pre_stop_cmd readinessProbe "
    "readiness_probe replicaSpec resources template tolerations",
}


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize("path", FIELDS)
def test_fields_of(path):
    assert sorted(at(path)["properties"]) == FIELDS[path].split()


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize(
    ("role", "more"),
    [
        ("pserver", {"max-instance", "maxInstance", "min-instance", "minInstance", "scaling"}),
        (
            "trainer",
            {"max-instance", "maxInstance", "min-instance", "minInstance", "passes", "replicas", "workspace"},
        ),
    ],
)
def test_further_fields_of(role, more):
    assert set(at(f"spec.{role}")["properties"]) - set(at("spec.master")["properties"]) == more


def spellings(model):
    """Every name under which a model reads its fields, but pydantic's own."""
    found = set()
    for name, field in model.model_fields.items():
        choices = getattr(field.validation_alias, "choices", None)
        found.update(choices or [field.validation_alias or field.alias or name])
    return {name for name in found if isinstance(name, str)}


@pytest.mark.rule("TJ:3-20")
@pytest.mark.parametrize(
    ("path", "model"), [("spec", TrainingJobSpec), ("spec.master", RoleSpec), ("spec.trainer", TrainerSpec)]
)
def test_whatever_the_operator_reads_may_be_written(path, model):
    assert spellings(model) <= set(at(path)["properties"])


def test_what_is_stored_is_what_was_written():
    job = json.loads(json.dumps(SEED))
    STRUCTURAL.default(job)
    assert job == SEED


def test_every_field_except_those_of_core_types_has_a_description():
    silent = [
        f"{path}.{name}"
        for path in ("spec", "spec.scaling", "spec.master", "spec.pserver", "spec.trainer")
        for name, field in at(path)["properties"].items()
        if "description" not in field
    ]
    assert silent == []
    assert "description" not in json.dumps(at("spec.volumes")["items"])


# --- nothing is ignored in silence -------------------------------------------------------------------------------------------

MODELS = {
    "spec": TrainingJobSpec,
    "spec.annotations": PaddleAnnotations,
    "spec.scaling": ScalingSpec,
    "spec.master": RoleSpec,
    "spec.pserver": PserverSpec,
    "spec.trainer": TrainerSpec,
}
EXAMPLE_BY_TYPE = {"string": "x", "integer": 1, "boolean": True, "object": {"name": "x"}}


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize("path", MODELS)
def test_every_field_is_read_or_named_as_unsupported(path):
    silent = []
    for name, schema in at(path)["properties"].items():
        if name in spellings(MODELS[path]):
            continue
        keys = [*path.removeprefix("spec").strip(".").split("."), name]
        job = changed_seed(**{"__".join(filter(None, keys)): EXAMPLE_BY_TYPE[schema["type"]]})
        if f"{path}.{name}" not in [one.field for one in unsupported(TrainingJob.parse(job))]:
            silent.append(f"{path}.{name}")
    assert silent == []


def test_the_status_of_a_job_is_stored_whole():
    pserver = {"min-instance": 1, "max-instance": 2, "scaling": "Ratio"}
    world = JobWorld(pserver=pserver, master={}, trainer={"template": {}}).run()
    world.obj["status"] = merged(
        world.status,
        {
            "scaling": {
                "lastScaleTime": "2026-01-01T00:00:00Z",
                "lastReason": "Growing",
                "history": [
                    {
                        "time": "2026-01-01T00:00:00Z",
                        "from": 1,
                        "to": 2,
                        "reason": "Growing",
                        "message": "m",
                        "forJob": "ns/b",
                    }
                ],
            },
            "failures": {"counted": ["uid-1"], "inARow": 1, "lastTime": "2026-01-01T00:00:00Z"},
            "admission": {"timeouts": 1},
            "waiting": "InsufficientGPU",
            "completionTime": "2026-01-01T00:00:00Z",
        },
    )
    stored = copy.deepcopy(world.obj)
    assert {"conditions", "trainer", "pserver", "master", "selector", "phase", "startTime"} <= set(world.status)
    assert STRUCTURAL.prune(stored) == []
    assert STRUCTURAL.violations(stored, is_status=True) == []


# --- what it rejects, as the operator does ---------------------------------------------------------------------------------

BOTH_REJECT = {
    "min above max": changed_seed(**{"trainer__min-instance": 7}),
    "min above max of parameter servers": changed_seed(**{"pserver__max-instance": 2}),
    "min above max in camel case": changed_seed(**{"trainer__min-instance": ..., "trainer__minInstance": 7}),
    "no minimum": changed_seed(**{"trainer__min-instance": ...}),
    "no minimum of parameter servers": changed_seed(**{"pserver__min-instance": ...}),
    "no trainers": changed_seed(**{"trainer__min-instance": 0}),
    "a negative count": changed_seed(**{"pserver__min-instance": -1}),
    "a negative size": changed_seed(trainer__replicas=-1),
    "elastic, yet not fault tolerant": changed_seed(fault_tolerant=False),
    "elastic, yet not fault tolerant in camel case": changed_seed(faultTolerant=False),
    "a size below the minimum": changed_seed(scaling={"allowedSizes": [2]}),
    "a size above the maximum": changed_seed(scaling={"allowedSizes": [7]}),
    "a step of nothing": changed_seed(scaling={"step": 0}),
    "a quantity of no unit": changed_seed(trainer__resources={"limits": {"cpu": "lots"}}),
    "ports beyond all ports": changed_seed(port=65535),
    "too many ports": changed_seed(port=65500, ports_num=90),
    "two spellings that differ": changed_seed(trainer__minInstance=4),
    "two spellings of ports that differ": changed_seed(ports_num=1, portsNum=2),
    "two spellings of a selector that differ": changed_seed(
        trainer__nodeSelector={"a": "b"}, trainer__node_selector={"a": "c"}
    ),
    "two spellings of grace that differ": changed_seed(pserver__gracePeriodSeconds=1, pserver__grace_period_seconds=2),
    "a name of host names too long": changed_seed("j" * 54),
    "a name for fewer trainers": changed_seed("j" * 53, **{"trainer__max-instance": 10}),
    "a name that begins with a digit": changed_seed("1job"),
    "no time to start": changed_seed(pendingTimeoutSeconds=0),
    "more failures than trainers": changed_seed(maxFailedPercent=101),
    "a deadline of nothing": changed_seed(activeDeadlineSeconds=0),
    "an unknown framework": changed_seed(framework="mx"),
}
ONLY_THE_OPERATOR = {
    "an elastic job of trainers without requests": changed_seed(trainer__resources={}),
    "a request above the limit": changed_seed(trainer__resources={"limits": {"cpu": 1}, "requests": {"cpu": 2}}),
    "a resource that no container may have": changed_seed(trainer__resources={"limits": {"gpu": 1}}),
    "a ratio of nothing": changed_seed(pserver__scaling={"mode": "Ratio", "trainersPerPserver": 0}),
    "an unknown mode of parameter servers": changed_seed(pserver__scaling="Often"),
    "a template's restart policy": changed_seed(trainer__template={"spec": {"restartPolicy": "Always"}}),
    "many parameter servers with a long name": changed_seed(
        "j" * 53, **{"pserver__min-instance": 10, "pserver__max-instance": 10}
    ),
}
"""Rules cannot compute it, or would cost the API server too much."""
BOTH_TAKE = {
    "the seed's example": changed_seed(),
    "one size": changed_seed(fault_tolerant=False, **{"trainer__max-instance": ...}),
    "camel case": changed_seed(
        **{
            "trainer__min-instance": ...,
            "trainer__minInstance": 1,
            "trainer__max-instance": ...,
            "trainer__maxInstance": 2,
        }
    ),
    "a bare ratio": changed_seed(pserver__scaling="Ratio"),
    "a whole ratio": changed_seed(pserver__scaling={"mode": "Ratio", "trainersPerPserver": 2}),
    "sizes": changed_seed(scaling={"allowedSizes": [4, 6]}),
    "no parameter servers": changed_seed(pserver=...),
    "trainers only": changed_seed(pserver=None, master=None),
    "a size beyond the bounds": changed_seed(trainer__replicas=99),
    "the longest name": changed_seed("j" * 53),
    "one line before the end": changed_seed(trainer__preStopCmd="sync"),
    "words before the end": changed_seed(trainer__preStopCmd=["sync"]),
}


def is_rejected_by_the_operator(obj):
    try:
        return bool(violations(TrainingJob.parse(obj)))
    except ValueError:
        return True


def is_rejected_by_the_crd(obj):
    obj = copy.deepcopy(obj)
    STRUCTURAL.default(obj)
    lost = STRUCTURAL.prune(obj)
    assert lost == []
    return bool(STRUCTURAL.violations(obj))


@pytest.mark.parametrize("obj", BOTH_REJECT.values(), ids=BOTH_REJECT)
def test_both_reject(obj):
    assert (is_rejected_by_the_crd(obj), is_rejected_by_the_operator(obj)) == (True, True)


@pytest.mark.parametrize("obj", ONLY_THE_OPERATOR.values(), ids=ONLY_THE_OPERATOR)
def test_only_the_operator_rejects(obj):
    assert (is_rejected_by_the_crd(obj), is_rejected_by_the_operator(obj)) == (False, True)


@pytest.mark.parametrize("obj", BOTH_TAKE.values(), ids=BOTH_TAKE)
def test_both_take(obj):
    assert (is_rejected_by_the_crd(obj), is_rejected_by_the_operator(obj)) == (False, False)


# --- what was broken before may stay ----------------------------------------------------------------------------------------


def test_a_stored_job_that_is_broken_can_still_be_suspended():
    broken = changed_seed(fault_tolerant=False)
    assert STRUCTURAL.violations({**broken, "spec": {**broken["spec"], "suspend": True}}, broken) == []


def test_an_edit_cannot_make_a_valid_job_invalid():
    (fault,) = STRUCTURAL.violations(changed_seed(fault_tolerant=False), changed_seed())
    assert fault.path == "spec.fault_tolerant"


CUT = {
    "two thousand million trainers": changed_seed(**{"trainer__min-instance": HUGE, "trainer__max-instance": HUGE}),
    "a maximum of two thousand million": changed_seed(**{"trainer__max-instance": HUGE}),
    "a size of two thousand million": changed_seed(trainer__replicas=HUGE),
    "two thousand million parameter servers": changed_seed(
        **{"pserver__min-instance": HUGE, "pserver__max-instance": HUGE}
    ),
    "20,000 ports": changed_seed(ports_num=20_000),
    "20,000 sparse ports": changed_seed(portsNumForSparse=20_000),
}


@pytest.mark.rule("FD:SEC-F1")
@pytest.mark.parametrize("obj", CUT.values(), ids=CUT)
def test_a_number_out_of_range_is_rejected_by_the_crd_and_cut_with_a_warning_if_stored(obj):
    assert is_rejected_by_the_crd(obj)
    job = TrainingJob.parse(obj)
    assert not violations(job)
    assert job.clamped
