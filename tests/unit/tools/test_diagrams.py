"""docs/figures/architecture.svg is current, and matches the modules and contracts that it shows."""

import itertools
import tomllib
from xml.etree import ElementTree as ET

import pytest

import architecture_picture as picture

SOURCE = picture.ROOT / "operator/src/raytide"
CONTRACTS = tomllib.loads((picture.ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
DECISIONS = next(contract for contract in CONTRACTS if contract["name"].startswith("Decisions do no I/O"))
BOXES = [pytest.param(box, id=box.title) for box in picture.BOXES]


def test_the_file_is_what_the_script_writes():
    assert picture.FILE.read_text() == picture.draw(), "run tools/generators/architecture_picture.py"


def test_it_is_well_formed_and_has_a_title_and_a_description():
    root = ET.fromstring(picture.draw())
    names = [child.tag.rpartition("}")[2] for child in root]
    assert names[:2] == ["title", "desc"]
    assert "http" not in picture.STYLE, "nothing is fetched"


@pytest.mark.parametrize("box", BOXES)
def test_each_box_represents_existing_modules(box):
    assert bool(box.modules) != box.is_external
    for module in box.modules:
        assert (SOURCE / module).exists(), module


@pytest.mark.parametrize("box", [param for param in BOXES if not param.values[0].is_external])
def test_a_box_is_marked_pure_exactly_if_the_contract_covers_its_modules(box):
    shells = [item.removesuffix(" -> **") for item in DECISIONS["ignore_imports"]]

    def is_pure(module: str) -> bool:
        name = f"raytide.{module.removesuffix('.py').replace('/', '.')}."
        is_held = any(name.startswith(f"{package}.") for package in DECISIONS["source_modules"])
        return is_held and not any(f"{shell}.".startswith(name) for shell in shells)

    assert all(map(is_pure, box.modules)) == box.is_pure


@pytest.mark.parametrize("box", BOXES)
def test_texts_fit_their_box(box):
    assert picture.text_width(box.title, picture.TITLE_SIZE) <= box.width - 8
    for line in box.lines:
        assert picture.text_width(line, picture.TEXT_SIZE) <= box.width - 8, line


def test_boxes_do_not_overlap_and_stay_on_the_page():
    for one, other in itertools.combinations(picture.BOXES, 2):
        apart_x = one.x + one.width <= other.x or other.x + other.width <= one.x
        apart_y = one.y + one.height <= other.y or other.y + other.height <= one.y
        assert apart_x or apart_y, (one.title, other.title)
    assert all(box.x + box.width <= picture.WIDTH and box.y + box.height <= picture.HEIGHT for box in picture.BOXES)


@pytest.mark.parametrize("arrow", picture.ARROWS, ids=lambda arrow: f"{arrow.points[0]} {arrow.label}")
def test_arrows_are_straight_and_cross_no_box(arrow):
    for (x1, y1), (x2, y2) in picture.segments(arrow):
        assert x1 == x2 or y1 == y2
        for box in picture.BOXES:
            inside_x = max(min(x1, x2), box.x + 1) <= min(max(x1, x2), box.x + box.width - 1)
            inside_y = max(min(y1, y2), box.y + 1) <= min(max(y1, y2), box.y + box.height - 1)
            assert not (inside_x and inside_y), box.title
