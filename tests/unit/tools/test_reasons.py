"""docs/conditions.md and docs/events.md have every reason that the operator can write, and no other."""

import ast
import json
import re
from pathlib import Path

import pytest

import reason_sources
import reason_texts
import reasons
from raytide.api import constants
from raytide.api import trainingjob_constants as training
from raytide.api.remedies import REMEDIES

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
CAMEL_CASE = re.compile(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]*)*")
NO_REASON = {  # constants spelled like reasons
    constants.AUTOSCALER_FIELD_MANAGER,
    *(value for name, value in vars(training).items() if name.startswith("PHASE_")),
}
NOT_POSTED = {"CreatedIngress"}
"""Events of KubeRay about what Raytide does not build (docs/compatibility.md)."""
OF_NO_CONDITION = {  # reasons of `raytide why` alone, at the top of api/remedies.py
    "Terminating",
    "ManagedByOther",
    "NotReconciled",
    "Suspended",
    "GroupSuspended",
    "AutoscalerPaused",
    "ReplicasClamped",
    "HeadNotReady",
    "NodeNotReady",
    "PodsMissing",
    "CannotBeParsed",
}


def names(found) -> dict[str, set[str]]:
    """The reasons of conditions by kind."""
    return {
        kind: {reason.described.name for each in found[kind] for reason in each.reasons} for kind in reason_texts.KINDS
    }


CONDITIONS = names(reasons.conditions())
EVENTS = {kind: {event.described.name for event in found} for kind, found in reasons.events().items()}


@pytest.mark.parametrize("kind", reason_texts.KINDS)
def test_the_pages_have_the_reasons_that_the_code_writes_and_no_others(kind):
    written = reason_sources.written_reasons(kind)
    assert CONDITIONS[kind] == written.conditions
    assert EVENTS[kind] == written.events


def test_the_pages_are_current():
    for path, text in reasons.build_all().items():
        assert path.read_text() == text, f"{path.name}: make reasons"


def test_every_call_that_is_listed_as_passing_on_a_reason_exists():
    found = set().union(*(reason_sources.written_reasons(kind).passed_on for kind in reason_texts.KINDS))
    assert found == set(reason_sources.PASSED_ON)


@pytest.mark.parametrize(
    ("module", "kind"), [(constants, reason_texts.RAYCLUSTER), (training, reason_texts.TRAININGJOB)]
)
def test_the_pages_have_every_constant_that_is_spelled_like_a_reason(module, kind):
    page = "".join(path.read_text() for path in (DOCS / "conditions.md", DOCS / "events.md"))
    values = {value for value in vars(module).values() if isinstance(value, str) and CAMEL_CASE.fullmatch(value)}
    assert {value for value in values - NO_REASON if f"`{value}`" not in page and f"### {value} " not in page} == set()


def test_a_reason_without_an_entry_fails_the_generator(monkeypatch):
    written = reason_sources.Reasons(conditions={"ReasonOfTomorrow"})
    monkeypatch.setattr(reasons, "written_reasons", lambda _kind: written)
    with pytest.raises(reason_texts.MissingEntryError, match=r"docs/conditions\.md has no ReasonOfTomorrow"):
        reasons.conditions()


def test_a_constant_without_a_docstring_fails_the_generator():
    with pytest.raises(reason_texts.MissingEntryError, match="HEAD_GROUP has no docstring"):
        reason_texts.of(constants, "HEAD_GROUP")


@pytest.mark.parametrize("kind", reason_texts.KINDS)
def test_every_warning_says_what_to_do(kind):
    warnings = [event for event in reasons.events()[kind] if event.type == "Warning"]
    assert len(warnings) > 10
    assert all(event.described.cure for event in warnings)


# --- other pages and recordings ----------------------------------------------------------------------------------------


def test_every_reason_that_has_a_remedy_is_a_reason_of_a_condition_or_of_raytide_why_alone():
    assert set(REMEDIES) - CONDITIONS["RayCluster"] - CONDITIONS["TrainingJob"] <= OF_NO_CONDITION


@pytest.mark.parametrize("page", ["user-guide.md", "trainingjob.md"])
def test_every_reason_in_the_tables_of_a_guide_is_on_the_pages(page):
    text = (DOCS / page).read_text()
    named = set()
    for heading in ("Conditions", "Events"):
        section = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        rows = "\n".join(line for line in section.splitlines() if line.startswith("|")) or section
        named |= {word for word in re.findall(r"`([A-Z]\w+)`", rows) if CAMEL_CASE.fullmatch(word)}
    kind = "RayCluster" if page == "user-guide.md" else "TrainingJob"
    types = {each.described.name for each in reasons.conditions()[kind]}
    assert len(named) > 20
    assert named - CONDITIONS[kind] - EVENTS[kind] - types - OF_A_POD - SIZES_AND_PHASES == set()


OF_A_POD = {"ContainersNotReady", "CrashLoopBackOff"}
SIZES_AND_PHASES = {"FailedTo", "Pending", "Creating"}


def test_every_reason_that_kuberay_recorded_is_on_the_pages_or_listed_as_a_difference():
    conditions, events = set(), set()
    for path in sorted((ROOT / "tests/golden/kuberay").glob("*.json")):
        recording = json.loads(path.read_text())
        events |= {reason for _, reason, about in recording["events"] if about == "RayCluster"}
        conditions |= set(re.findall(r'"reason": "(\w+)", "status"', json.dumps(recording["status"], sort_keys=True)))
    assert len(conditions) > 3
    assert conditions - CONDITIONS["RayCluster"] == set()
    assert events - EVENTS["RayCluster"] - NOT_POSTED == set()


# --- reasons in the code -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "values"),
    [
        pytest.param('B("A")', {"A"}, id="a text"),
        pytest.param('B(reason="A")', {"A"}, id="a named argument"),
        pytest.param("B(NAME)", {"N"}, id="a constant"),
        pytest.param("B(m.NAME)", {"M"}, id="a constant of another module"),
        pytest.param('B("A" if x else NAME)', {"A", "N"}, id="both of two"),
        pytest.param('def f(x):\n    y = "A" if x else "C"\n    B(y)', {"A", "C"}, id="a variable"),
        pytest.param('def f(y):\n    B(y)\nf("A")\nf(y=NAME)', {"A", "N"}, id="a parameter"),
        pytest.param('def g():\n    return "A"\ndef f():\n    B(g())', {"A"}, id="a function of the module"),
        pytest.param("def f(y):\n    B(y)", {None}, id="a parameter that other modules pass"),
        pytest.param("B(x.reason)", {None}, id="an attribute of a value"),
        pytest.param("B(*x)", {None}, id="unpacked arguments"),
        pytest.param("B()", set(), id="none"),
    ],
)
def test_the_reasons_of_a_call(source, values):
    other = type("Other", (), {"NAME": "M"})
    module = reason_sources.Module(ast.parse(source), {"NAME": "N", "m": other})
    found = {
        value for call, function in module.calls({"B": {}}) for value in module.argument(call, "reason", 0, function)
    }
    assert found == values


def test_a_reason_of_unknown_origin_is_an_error(tmp_path, monkeypatch):
    folder = tmp_path / "raycluster"
    folder.mkdir()
    (folder / "plan.py").write_text("def wait(x):\n    return EventSpec(x.reason, '')\n")
    monkeypatch.setattr(reason_sources, "PRODUCT", tmp_path)
    with pytest.raises(reason_sources.UnknownSourceError, match=r"raycluster\.plan\.wait passes a reason on"):
        reason_sources.written_reasons.__wrapped__("RayCluster")
