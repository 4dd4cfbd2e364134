"""The moving picture of lanes: its shapes, nothing that runs or is fetched, and names that contain markup."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import lanes_picture

FIGURES = Path(__file__).parents[3] / "docs" / "figures"
SVG = "{http://www.w3.org/2000/svg}"
MARKUP = '<script>alert("x")</script>'


def item(name="demo", steps=((100, 4, 0, "WaitingForPods"), (160, 4, 4, "")), marks=(), kind="RayCluster"):
    return {
        "kind": kind, "namespace": "default", "name": name, "wanted": 4, "ready": 4,
        "steps": [list(each) for each in steps], "marks": list(marks),
    }  # fmt: skip


def drawn(*items, since=100, at=200):
    return ET.fromstring(lanes_picture.svg({"items": list(items), "recordedSince": since, "at": at}))


def rects(root, look):
    return [each for each in root.iter(f"{SVG}rect") if look in (each.get("class"), each.get("fill"))]


def test_what_is_ready_is_filled_and_what_is_missing_is_hatched_with_the_reason():
    root = drawn(item())
    (*ready, _) = rects(root, "RayCluster ready")  # the last one is in the legend
    assert [(float(each.get("x")), float(each.get("width"))) for each in ready] == [(676.8, 311.2)]
    (*missing, _) = rects(root, "url(#hatch)")
    assert [(float(each.get("x")), float(each.get("width"))) for each in missing] == [(210, 466.8)]
    assert "WaitingForPods" in [text.text for text in root.iter(f"{SVG}text")]


def test_a_lane_without_steps_has_its_name_only():
    root = drawn(item(steps=()))
    assert len(rects(root, "RayCluster ready")) == 1
    assert "default/demo" in [text.text for text in root.iter(f"{SVG}text")]


def test_no_shape_is_outside_of_the_chart():
    root = drawn(item(steps=((50, 9, 3, ""), (500, 2, 7, ""))), item("b", kind="TrainingJob"))
    for each in rects(root, "RayCluster ready") + rects(root, "url(#hatch)"):
        assert 0 <= float(each.get("x")) <= float(each.get("x")) + float(each.get("width")) <= lanes_picture.WIDTH
        assert float(each.get("height")) >= 0


@pytest.mark.parametrize("field", ["name", "kind", "reason", "mark"])
def test_markup_in_a_name_is_text(field):
    steps = ((100, 4, 0, MARKUP if field == "reason" else "A"),)
    marks = [{"at": 150, "gave": True, "text": MARKUP if field == "mark" else "b"}]
    more = {field: MARKUP} if field in ("name", "kind") else {}
    root = drawn(item(**{"steps": steps, "marks": marks, **more}), at=10_000)
    assert not [each for each in root.iter() if each.tag.endswith("script")]


def test_the_picture_of_the_readme_runs_nothing_and_fetches_nothing():
    text = (FIGURES / "ui-lanes.svg").read_text()
    root = ET.fromstring(text)
    assert not [
        each for each in root.iter() if each.tag.rpartition("}")[2] in ("script", "image", "foreignObject", "a", "use")
    ]
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"url\(([^)]*)\)", text)) == {"#hatch", "#shutter"}
    assert len([each for each in root.iter(f"{SVG}text") if "name" in (each.get("class") or "").split()]) >= 6
    assert len(text) <= 60_000
