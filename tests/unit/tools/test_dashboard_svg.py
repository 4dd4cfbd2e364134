"""The picture of a Grafana dashboard: values, legends, stacking and gaps; those in docs/figures have the panels of the chart."""

import xml.etree.ElementTree as ET
from operator import itemgetter
from pathlib import Path

import pytest

import dashboard_svg
import dashboards
from dashboard_svg import Answer, Series, formatted

FIGURES = Path(__file__).resolve().parents[3] / "docs" / "figures"
CHARACTER = 7
"""Width of a digit of the labels in pixels, rounded up."""
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


def titles(picture):
    """Of rows and panels, in the order of the drawing."""
    return [each.text for each in picture.iter(f"{SPACE}text") if each.get("class") in ("ink row", "ink title")]


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


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (0.3, ["0 s", "100 ms", "200 ms", "300 ms"]),
        (58, ["0 s", "20 s", "40 s", "1 min"]),
        (172, ["0 s", "1 min", "2 min", "3 min"]),
        (6000, ["0 s", "30 min", "1 hour", "1.5 hour", "2 hour"]),
        (40_000, ["0 s", "4 hour", "8 hour", "12 hour"]),
    ],
)
def test_an_axis_of_durations_has_whole_minutes_or_hours(most, labels):
    one = panel("timeseries") | {"fieldConfig": {"defaults": {"unit": "s"}}}
    assert words(drawn(one, Answer("", (series(0, most),))))[2 : 2 + len(labels)] == labels


def test_a_label_of_an_axis_does_not_leave_its_panel():
    one = panel("timeseries") | {"fieldConfig": {"defaults": {"unit": "ops"}}}
    picture = drawn(one, Answer("", (series(0, 0.2),)))
    (label,) = (each for each in picture.iter(f"{SPACE}text") if each.text == "0.05 ops/s")
    assert float(label.get("x")) - CHARACTER * len(label.text) > dashboard_svg.GAP


def test_a_number_is_the_last_sample():
    assert "12" in words(drawn(panel("stat"), Answer("", (series(3, 12),))))


def test_a_table_has_a_column_for_each_label():
    shown = words(drawn(panel("table"), Answer("", (series(4, namespace="ml", name="etl"),))))
    assert shown[2:] == ["namespace", "name", "Value", "ml", "etl", "4"]


@pytest.mark.parametrize("dashboard", list(map(dashboards.build, dashboards.DASHBOARDS)), ids=itemgetter("uid"))
def test_each_panel_of_the_dashboards_of_the_chart_can_be_drawn(dashboard):
    answers = {
        panel["id"]: [Answer(target["legendFormat"], (series(1, 2),)) for target in panel.get("targets", ())]
        for panel in dashboard["panels"]
    }
    picture = ET.fromstring(dashboard_svg.svg(dashboard, answers, 0.0, 60.0))
    assert titles(picture) == [panel["title"] for panel in dashboard["panels"]]
    assert "No data" not in words(picture)


@pytest.mark.parametrize("dashboard", list(map(dashboards.build, dashboards.DASHBOARDS)), ids=itemgetter("uid"))
def test_the_pictures_in_the_documentation_have_each_panel(dashboard):
    """A panel that is added to the generator needs `make dashboard-pictures`, too."""
    picture = ET.parse(FIGURES / f"dashboard-{dashboard['uid'].removeprefix('raytide-')}.svg").getroot()
    assert titles(picture) == [panel["title"] for panel in dashboard["panels"]]
