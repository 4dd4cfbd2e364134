"""Every TrainingJob is read or rejected with a path, and validated without an exception (RM:I9)."""

import copy

import hypothesis.strategies as st
import pytest
from hypothesis import event, given, settings
from pydantic import ValidationError

from raytide.api.base_model import faults_of
from raytide.api.config import DEFAULT_GPUS
from raytide.api.training_resources import is_gang
from raytide.api.trainingjob import InstancesSpec, PserverSpec, ScalingSpec, TrainerSpec, TrainingJob, TrainingJobSpec
from raytide.api.trainingjob_constants import ROLES
from raytide.api.trainingjob_pods import pod_outline
from raytide.trainingjob.validation import unsupported, violations, warnings
from support.training_builders import changed_seed

WORDS = st.sampled_from(["", "x", "1", "-1", "500m", "1Gi", "trainer", "Always", "cpu", "nvidia.com/gpu", "containers"])
LEAVES = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | WORDS
ANYTHING = st.recursive(
    LEAVES, lambda more: st.lists(more, max_size=3) | st.dictionaries(WORDS, more, max_size=3), max_leaves=6
)
LISTS = st.lists(
    st.dictionaries(st.sampled_from(["name", "mountPath", "containerPort"]), ANYTHING, max_size=2), max_size=2
)
RESOURCES = st.fixed_dictionaries(
    {},
    optional={part: st.dictionaries(WORDS, LEAVES, max_size=3) | ANYTHING for part in ("requests", "limits")},
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": WORDS | ANYTHING},
        optional={
            "resources": RESOURCES | ANYTHING,
            **dict.fromkeys(("env", "volumeMounts", "ports"), LISTS | ANYTHING),
        },
    ),
    max_size=3,
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "spec": st.fixed_dictionaries(
            {}, optional={"containers": CONTAINERS | ANYTHING, "restartPolicy": ANYTHING, "volumes": LISTS | ANYTHING}
        )
    },
)


def names_of(model):
    for name, field in model.model_fields.items():
        yield from getattr(field.validation_alias, "choices", None) or [field.alias or name]


PLACES = (
    *(("spec", name) for name in names_of(TrainingJobSpec)),
    *(("spec", "scaling", name) for name in names_of(ScalingSpec)),
    *(("spec", role, name) for role in ROLES for name in names_of(InstancesSpec)),
    *(("spec", "trainer", name) for name in names_of(TrainerSpec)),
    *(("spec", "pserver", name) for name in names_of(PserverSpec)),
    *(("spec", name) for name in ("frame_work", "annotations", "namespace", "local_job")),
)
VALUES = {"template": TEMPLATES, "resources": RESOURCES}
OFTEN = tuple(place for place in PLACES if place[-1] in VALUES)
"""What the API server's schema does not look into, or only a little."""


@st.composite
def jobs(draw):
    """The design's example with some fields replaced."""
    obj = copy.deepcopy(changed_seed())
    for *way, last in draw(st.lists(st.sampled_from(OFTEN) | st.sampled_from(PLACES), min_size=1, max_size=3)):
        place = obj
        for step in way:
            place = place.get(step) if isinstance(place, dict) else None
            if place is None:
                break
        if isinstance(place, dict):
            place[last] = draw(VALUES.get(last, ANYTHING))
    return obj


def read(obj):
    """The job, or the complaints about it."""
    try:
        return TrainingJob.parse(obj), ()
    except ValidationError as error:
        return None, faults_of(error)


@pytest.mark.rule("RM:I9")
@settings(max_examples=800, deadline=None)
@given(jobs())
def test_any_job_is_read_or_rejected_with_a_path_and_checked(obj):
    job, complaints = read(obj)
    assert (job is None) == bool(complaints)
    assert all(fault.field.startswith("spec") for fault in complaints)
    if job is None:
        return
    event("judged")
    found = (*violations(job), *warnings(job))
    assert all(fault.field.startswith(("spec.", "metadata.")) and fault.message for fault in found)
    assert all(one.field.startswith("spec.") for one in unsupported(job))
    assert is_gang(job, DEFAULT_GPUS) in (True, False)
    if not violations(job):
        event("sound")
        outlines = [pod_outline(job, role) for role in ROLES]
        assert all(outline["spec"]["containers"] for outline in outlines)
