"""The diagrams in docs/figures are current and readable; the one of the architecture matches modules and contracts."""

import itertools
import tomllib
from xml.etree import ElementTree as ET

import pytest

import concept_pictures
import diagram
from architecture_picture import ARCHITECTURE, ROOT

SOURCE = ROOT / "operator/src/raytide"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
DECISIONS = next(contract for contract in CONTRACTS if contract["name"].startswith("Decisions do no I/O"))
BOXES = [pytest.param(box, id=box.title) for box in ARCHITECTURE.boxes]
DIAGRAMS = [pytest.param(one, id=one.file.stem) for one in (ARCHITECTURE, *concept_pictures.diagrams())]


@pytest.mark.parametrize("drawn", DIAGRAMS)
def test_the_file_is_what_the_script_writes(drawn):
    assert drawn.file.read_text() == diagram.draw(drawn), "run its script in tools/generators"


@pytest.mark.parametrize("drawn", DIAGRAMS)
def test_it_is_well_formed_and_has_a_title_and_a_description(drawn):
    root = ET.fromstring(diagram.draw(drawn))
    names = [child.tag.rpartition("}")[2] for child in root]
    assert names[:2] == ["title", "desc"]
    assert "http" not in diagram.STYLE, "nothing is fetched"


@pytest.mark.parametrize("drawn", DIAGRAMS)
def test_each_class_has_a_style(drawn):
    root = ET.fromstring(diagram.draw(drawn))
    assert {f".{found}" for element in root.iter() if (found := element.get("class"))} <= set(
        diagram.STYLE.replace(",", "").split()
    )


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


@pytest.mark.parametrize("drawn", DIAGRAMS)
def test_texts_fit_their_box_and_the_page(drawn):
    for box in drawn.boxes:
        assert diagram.text_width(box.title, box.title_size) <= box.width - 8, box.title
        for line in box.lines:
            assert diagram.text_width(line, diagram.TEXT_SIZE) <= box.width - 8, line
    for label in drawn.labels:
        width = diagram.text_width(label.text, label.size)
        left = label.x - {"start": 0, "middle": width / 2, "end": width}[label.anchor]
        assert left >= 0, label.text
        assert left + width <= drawn.width, label.text


@pytest.mark.parametrize("drawn", DIAGRAMS)
def test_boxes_do_not_overlap_and_stay_on_the_page(drawn):
    for one, other in itertools.combinations(drawn.boxes, 2):
        apart_x = one.x + one.width <= other.x or other.x + other.width <= one.x
        apart_y = one.y + one.height <= other.y or other.y + other.height <= one.y
        assert apart_x or apart_y, (one.title, other.title)
    for part in (*drawn.boxes, *drawn.areas):
        assert part.x + part.width <= drawn.width, part
        assert part.y + part.height <= drawn.height, part


@pytest.mark.parametrize("drawn", DIAGRAMS)
def test_arrows_are_straight_and_cross_no_box(drawn):
    for arrow in drawn.arrows:
        for (x1, y1), (x2, y2) in diagram.segments(arrow):
            assert x1 == x2 or y1 == y2, arrow
            for box in drawn.boxes:
                inside_x = max(min(x1, x2), box.x + 1) <= min(max(x1, x2), box.x + box.width - 1)
                inside_y = max(min(y1, y2), box.y + 1) <= min(max(y1, y2), box.y + box.height - 1)
                assert not (inside_x and inside_y), (box.title, arrow)


def test_the_sizes_in_the_picture_of_fair_sharing_are_within_their_bounds_and_fill_the_cluster():
    for count in range(1, len(concept_pictures.JOBS) + 1):
        sizes = concept_pictures.sizes(count)
        assert all(low <= size <= high for size, (_, low, high, _) in zip(sizes, concept_pictures.JOBS, strict=False))
        assert sum(sizes) == min(concept_pictures.CPUS, sum(high for _, _, high, _ in concept_pictures.JOBS[:count]))
