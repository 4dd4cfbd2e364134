"""The picture of a Grafana dashboard: values, legends, stacking and gaps."""

import xml.etree.ElementTree as ET

import pytest

import dashboard_svg
import dashboards
from dashboard_svg import Answer, Series, formatted

SPACE = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0, "short", "0"),
        (7, "short", "7"),
        (12_300, "short", "12.3 K"),
        (0.25, "percentunit", "25%"),
        (0, "s", "0 s"),
        (0.0042, "s", "4.2 ms"),
        (0.000_02, "s", "20 µs"),
        (90, "s", "1.5 min"),
        (172_800, "s", "2 day"),
        (512, "bytes", "512 B"),
        (128 * 2**20, "bytes", "128 MiB"),
        (3.5, "ops", "3.5 ops/s"),
        (2, "wps", "2 wr/s"),
        (float("nan"), "s", "nan"),
    ],
)
def test_a_value_is_written_as_grafana_does(value, unit, words):
    assert formatted(value, unit) == words


def panel(kind, **more):
    place = {"x": 0, "y": 0, "w": 12, "h": 8}
    defaults = {"unit": "short", "custom": more}
    return {"id": 1, "type": kind, "title": "Workers", "gridPos": place, "fieldConfig": {"defaults": defaults}}


def drawn(one, *answers):
    dashboard = {"title": "A & B", "panels": [one]}
    return ET.fromstring(dashboard_svg.svg(dashboard, {1: answers}, 0.0, 60.0))


def words(picture):
    return [each.text for each in picture.iter(f"{SPACE}text")]


def curves(picture):
    """The points of each line."""
    found = [each for each in picture.iter(f"{SPACE}path") if each.get("class") == "series"]
    return [[tuple(map(float, point.split(","))) for point in each.get("d")[1:].split()] for each in found]


def series(*values, every_s=10.0, **labels):
    return Series(labels, tuple((number * every_s, value) for number, value in enumerate(values) if value is not None))


def test_a_panel_without_samples_says_so():
    assert "No data" in words(drawn(panel("timeseries"), Answer("", ())))


def test_a_legend_has_the_labels_of_its_series():
    picture = drawn(
        panel("timeseries"), Answer("{{name}} {{ group }} {{other}}", (series(1, 2, name="a<b", group="g"),))
    )
    assert "a<b g " in words(picture)


def test_stacked_series_lie_on_each_other():
    both = Answer("{{name}}", (series(1, 1, name="a"), series(2, 2, name="b")))
    lower, upper = curves(drawn(panel("timeseries", stacking={"mode": "normal"}), both))
    (plain, above) = curves(drawn(panel("timeseries"), both))
    zero = 2 * plain[0][1] - above[0][1]  # 1 and 2 above it
    top = zero - upper[0][1]
    assert top == pytest.approx(3 * (zero - lower[0][1]), rel=0.01)


def test_nothing_is_drawn_where_a_series_has_a_gap():
    picture = drawn(panel("timeseries"), Answer("", (series(1, 1, None, None, 1, 1),)))
    assert [len(curve) for curve in curves(picture)] == [2, 2]


def test_many_series_are_drawn_and_few_are_named():
    many = tuple(series(number, name=f"c-{number}") for number in range(20))
    picture = drawn(panel("timeseries"), Answer("{{name}}", many))
    assert len(curves(picture)) == 20
    assert "and 14 more" in words(picture)


def test_a_number_is_the_last_sample():
    assert "12" in words(drawn(panel("stat"), Answer("", (series(3, 12),))))


def test_a_table_has_a_column_for_each_label():
    shown = words(drawn(panel("table"), Answer("", (series(4, namespace="ml", name="etl"),))))
    assert shown[2:] == ["namespace", "name", "Value", "ml", "etl", "4"]


def test_each_panel_of_the_dashboards_of_the_chart_can_be_drawn():
    for dashboard in map(dashboards.build, dashboards.DASHBOARDS):
        answers = {
            panel["id"]: [Answer(target["legendFormat"], (series(1, 2),)) for target in panel.get("targets", ())]
            for panel in dashboard["panels"]
        }
        shown = words(ET.fromstring(dashboard_svg.svg(dashboard, answers, 0.0, 60.0)))
        assert {panel["title"] for panel in dashboard["panels"]} <= set(shown)
        assert "No data" not in shown
