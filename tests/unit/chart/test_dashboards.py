"""Dashboards of the chart: what Grafana needs of each panel, and metrics, labels and variables that exist. Needs no Grafana."""

import itertools
import json
import re

import pytest

import monitoring
from support.monitoring import CHART, faults
from support.promql import kept_labels, selectors

FILES = {path.name: json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))}
PANELS = {
    f"{board['uid']}/{panel['title']}/{panel['type']}": panel
    for board in FILES.values()
    for panel in board["panels"]
    if panel["type"] != "row"
}
UNITS = {"short", "s", "bytes", "percentunit", "ops", "wps"}
COLUMNS = 24
CONFIG_MAP_BYTES = 1024 * 1024

each_board = pytest.mark.parametrize("name", FILES)
each_panel = pytest.mark.parametrize("name", PANELS)


def test_the_uids_of_dashboards_are_stable():
    """Links to a dashboard have its uid: do not change one."""
    assert {name: board["uid"] for name, board in FILES.items()} == {
        f"{uid}.json": uid for uid in ("raytide-operator", "raytide-rayclusters", "raytide-trainingjobs")
    }


def test_they_fit_into_a_config_map():
    assert sum(path.stat().st_size for path in (CHART / "dashboards").iterdir()) < CONFIG_MAP_BYTES / 4


@each_board
def test_a_dashboard_has_the_variables_datasource_namespace_and_name(name):
    variables = FILES[name]["templating"]["list"]
    assert [variable["name"] for variable in variables] == ["datasource", "namespace", "name"]
    assert (variables[0]["type"], variables[0]["query"]) == ("datasource", "prometheus")
    for variable in variables[1:]:
        query, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
        assert list(faults(f"max by ({label}) ({query})")) == []
        assert (variable["multi"], variable["includeAll"]) == (True, True)


@each_board
def test_no_data_source_is_written_into_it(name):
    sources = list(data_sources(FILES[name]))
    assert len(sources) > len(FILES[name]["panels"])
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


def data_sources(node):
    """Every data source that the dashboard names."""
    for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key == "datasource":
            yield child
        else:
            yield from data_sources(child)


@each_board
def test_panels_have_ids_of_their_own_and_do_not_overlap(name):
    panels = FILES[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS
        assert place["h"] > 0
    for one, other in itertools.combinations((panel["gridPos"] for panel in panels), 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )


@each_panel
def test_a_panel_has_a_title_a_description_a_unit_and_queries(name):
    panel = PANELS[name]
    assert panel["type"] in ("timeseries", "stat", "table")
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@each_panel
def test_a_panel_names_only_metrics_labels_and_values_that_exist(name):
    for target in PANELS[name]["targets"]:
        assert list(selectors(target["expr"]))
        assert list(faults(target["expr"])) == []
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= legend_labels(target["expr"])


def legend_labels(expression):
    """Labels of the result: those of the first `by`; without one, those of the metric."""
    return kept_labels(expression) if re.search(r"\bby\b", expression) else {"namespace", "ray_io_cluster"}


@each_panel
def test_every_selector_follows_the_selection_of_namespaces(name):
    """But series that exist once for all namespaces, and those that only filter others."""
    of_all = {"pool_free", "pool_fragmented", "pool_plan_seconds_bucket", "raycluster_time_to_capacity_seconds_bucket"}
    of_all |= {"trainingjob_scale_total", "raytide_autoscaler_tick_seconds_count"}
    for target in PANELS[name]["targets"]:
        for selector in selectors(target["expr"]):
            is_selected = selector.values.get("namespace") == {"$namespace"}
            assert is_selected or selector.metric in of_all


def test_the_expressions_that_promtool_checks_are_all_of_them():
    groups = json.loads(monitoring.recording_rules())["groups"]
    assert [group["name"] for group in groups] == [board["uid"] for board in FILES.values()]
    targets = [target for panel in PANELS.values() for target in panel["targets"]]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(targets)
    assert not [rule for rule in rules if "$__" in rule["expr"]]
