"""The catalogue of reasons: what its texts name, and that nothing else is read."""

import json
from dataclasses import fields
from string import Formatter

import pytest

from raytide.api.record_fields import (
    MAX_DIAGNOSES,
    diagnoses_entry,
    diagnosis_entry,
    diagnosis_or_none,
    stored_diagnoses,
)
from raytide.diagnosis.catalogue import CATALOGUE, DEFAULTS
from raytide.diagnosis.model import PARAMETERS, Diagnosis, Stage, Workload
from raytide.diagnosis.render import fix_of, holder_and_fix, holder_of, text_of

DEMO = Workload("RayCluster", "default", "demo")


@pytest.mark.rule("SC:S21")
def test_templates_name_the_workload_the_group_and_parameters_only():
    texts = [text for entry in CATALOGUE.values() for text in (entry.holder, entry.fix, entry.text)]
    named = {name for text in texts if isinstance(text, str) for _, name, _, _ in Formatter().parse(text) if name}
    assert named <= {*PARAMETERS, *(each.name for each in fields(Workload)), "group"}
    assert DEFAULTS.keys() <= PARAMETERS


@pytest.mark.parametrize("reason", [*CATALOGUE, "Unknown", ""])
def test_a_reason_without_parameters_or_with_foreign_ones_has_texts_all_the_same(reason):
    """As in a record that another client wrote."""
    for found in (Diagnosis(reason), Diagnosis(reason, parameters={"namespace": "{x}", "shapes": "{0}", "odd": "y"})):
        assert "{x}" not in holder_of(found, DEMO) + fix_of(found, DEMO), "the workload is not a parameter"
        text_of(found)


@pytest.mark.rule("FD:ST3-2")
@pytest.mark.parametrize(
    ("found", "holder"),
    [
        pytest.param(
            Diagnosis("QuotaExceeded", message='pods "a" is forbidden: exceeded quota: few, tenant big has 0 left'),
            "ResourceQuota few",
            id="a quota beside words of a tenant's limit",
        ),
        pytest.param(
            Diagnosis("HigherPriority", message="held by default/forged, which has a higher priority"),
            "other TrainingJobs",
            id="a holder in the message alone",
        ),
        pytest.param(
            Diagnosis("CrashLoop", message="container forged: no").having(container="ray", pod="a"),
            "ray of pod a",
            id="a container in the message",
        ),
        pytest.param(
            Diagnosis("Unsatisfiable", message="no node matches, says the webhook"),
            "the size of the nodes",
            id="words of another cause",
        ),
    ],
)
def test_holders_are_taken_from_fields_and_from_kubernetes_forms_alone(found, holder):
    assert holder_of(found, DEMO) == holder


def test_a_drain_has_a_text_and_no_remedy():
    found = Diagnosis("Draining", 1).having(nodes="1")
    assert text_of(found) == "draining nodes: 1; a node is deleted when its work is finished"
    assert holder_and_fix(found, DEMO) == ""


@pytest.mark.rule("FD:SEC3-3")
def test_a_record_keeps_known_parameters_that_are_texts_cut():
    entry = {"reason": "MaxReached", "parameters": {"maximum": "2", "shapes": "x" * 5000, "nodes": 3, "password": "y"}}
    found = diagnosis_or_none(entry)
    assert found is not None
    assert found.parameters == {"maximum": "2", "shapes": "x" * 5000}
    assert len(str(diagnosis_entry(found, 1000))) < 1200
    assert diagnosis_entry(found, 0) == {"reason": "MaxReached", "count": 0}
    assert diagnosis_or_none({"reason": "MaxReached", "parameters": ["maximum"]}) == Diagnosis("MaxReached")


def test_a_status_has_the_diagnoses_that_were_stored():
    found = Diagnosis("QuotaExceeded", 2, "no", "trainer", {"quota": "few"}, Stage.DECISION)
    assert stored_diagnoses({"diagnoses": diagnoses_entry([found])}) == (found,)
    assert diagnoses_entry([Diagnosis("Unschedulable")]) == [{"reason": "Unschedulable"}]


@pytest.mark.rule("FD:SEC3-7")
def test_a_status_has_a_bounded_number_of_escaped_diagnoses():
    hostile = Diagnosis("CrashLoop", 1, "\x1b[31m" + "é" * 9000, "cpu", {"pod": "\u202e" + "x" * 9000})
    stored = diagnoses_entry([hostile] * 1000)
    assert len(stored) == MAX_DIAGNOSES
    assert len(json.dumps(stored, ensure_ascii=False).encode()) < 32 * 1024
    assert "\\x1b[31m" in stored[0]["message"]
    assert stored[0]["parameters"]["pod"].startswith("\\u202e")


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"diagnoses": 5},
        {"diagnoses": [5, {}, {"reason": 5}, {"reason": ""}]},
        {"diagnoses": {"reason": "MaxReached"}},
    ],
)
def test_a_status_of_another_form_has_no_diagnoses(status):
    assert stored_diagnoses(status) == ()


def test_fields_of_another_form_are_left_out():
    entry = {"reason": "R", "count": -1, "group": 5, "stage": "later", "message": [], "parameters": {"pod": 5}}
    assert stored_diagnoses({"diagnoses": [entry]}) == (Diagnosis("R"),)
