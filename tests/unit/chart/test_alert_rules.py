"""Alert rules of the chart: names, runbooks, metrics that exist, and a case for promtool each. Needs neither helm nor promtool."""

import re

import pytest
import yaml

import links
from raytide.api.autoscaler_decision import PERMANENT_REASONS
from support.monitoring import CHART, TARGET_LABELS, faults
from support.promql import kept_labels, selectors

ROOT = CHART.parents[1]
RUNBOOKS = ROOT / "docs" / "runbooks.md"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((CHART / "rules" / "raytide.yaml").read_text())["groups"]
    for rule in group["rules"]
}
CASES = yaml.safe_load((ROOT / "tests" / "alerts" / "raytide_test.yaml").read_text())
PAGE = "https://github.com/raytide/raytide/blob/main/docs/runbooks.md"
UNITS = {"m": 60, "h": 3600}

each_alert = pytest.mark.parametrize("name", RULES)


def sections():
    """The text below each heading of an alert in the runbooks."""
    parts = re.split(r"^### (\w+)\n", RUNBOOKS.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def seconds(duration):
    return int(duration[:-1]) * UNITS[duration[-1]]


def queries(text):
    """Expressions that the template of an annotation queries."""
    return [query.replace("%q", '"x"') for query in re.findall(r"printf `([^`]*)`", text)]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert():
    assert list(sections()) == list(RULES)


@each_alert
def test_a_runbook_says_what_the_alert_means_where_to_look_and_what_to_do(name):
    assert re.findall(r"^\*\*(.*):\*\*", sections()[name], re.MULTILINE) == ["Means", "Look at", "Do"]


@each_alert
def test_the_annotation_leads_to_the_runbook(name):
    page, _, anchor = RULES[name]["annotations"]["runbook_url"].partition("#")
    assert page == PAGE
    assert anchor == name.lower()
    assert anchor in links.anchors(RUNBOOKS.read_text())


@each_alert
def test_an_alert_has_a_delay_a_severity_and_texts(name):
    rule = RULES[name]
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert seconds(rule["for"]) >= 180
    assert rule["annotations"]["description"].endswith(".")
    assert not rule["annotations"]["summary"].endswith(".")


@each_alert
def test_an_alert_names_only_metrics_labels_and_values_that_exist(name):
    rule = RULES[name]
    texts = " ".join(rule["annotations"].values())
    for expression in (rule["expr"], *queries(texts)):
        assert list(selectors(expression))
        assert list(faults(expression)) == []
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= (kept_labels(rule["expr"]) or TARGET_LABELS)


def test_what_waiting_does_not_help_has_an_alert_of_its_own():
    """What `RayClusterDemandInfeasible` is about does not count for `RayClusterScalingLimited`."""
    (permanent,), (other,) = (
        list(selectors(RULES[name]["expr"])) for name in ("RayClusterDemandInfeasible", "RayClusterScalingLimited")
    )
    assert permanent.values["reason"] == PERMANENT_REASONS
    assert other.values["reason"] == PERMANENT_REASONS | {"Draining"}


@each_alert
def test_an_alert_has_a_case_in_which_it_is_quiet_fires_and_resolves(name):
    """`make chart` runs the cases with promtool; the first look is within the last minute before the alert may fire."""
    (case,) = [case for case in CASES["tests"] if case["name"].partition(":")[0] == name]
    before, fires, after = case["alert_rule_test"]
    assert {look["alertname"] for look in (before, fires, after)} == {name}
    assert [bool(look["exp_alerts"]) for look in (before, fires, after)] == [False, True, False]
    times = [seconds(look["eval_time"]) for look in (before, fires, after)]
    assert times == sorted(times)
    (alert,) = fires["exp_alerts"]
    assert alert["exp_annotations"]["runbook_url"] == RULES[name]["annotations"]["runbook_url"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("sum by (namespace, job) (rate(raytide_passes[5m])) > 0.5", []),
        ("raytide_pases > 1", ["raytide_pases: no such metric"]),
        ('raytide_passes{kind="a"}', ["raytide_passes: no such label: kind"]),
        ('raytide_passes{ray_io_cluster="a", namespace=~"$namespace"}', []),
        ('raycluster_workers{state=~"ready|wanted"}', ["raycluster_workers: state is never wanted"]),
        ("sum by (group) (raytide_passes)", ["no such label: group"]),
        ("max(pool_free) / on (resource) pool_fragmented", []),
        ('raytide_passes and on (job) raytide_x{a="}"}', ["raytide_x: no such metric"]),
    ],
)
def test_a_wrong_name_is_found(expression, expected):
    assert list(faults(expression)) == expected
