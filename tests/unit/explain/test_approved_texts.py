"""Every cause as users read it: conditions and `raytide why` of each known workload, as they were approved.

A change of a text changes approved_texts.txt, where it is looked at: `RAYTIDE_APPROVE=1 pytest` of this file writes it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from raytide.cli.why.render import render
from raytide.explain.explain import explain
from support.explained import NOON, RAYCLUSTERS, TRAININGJOBS

APPROVED = Path(__file__).with_name("approved_texts.txt")

pytestmark = pytest.mark.rule("SC:S21")


def texts() -> Iterator[str]:
    for kind, cases in (("RayCluster", RAYCLUSTERS), ("TrainingJob", TRAININGJOBS)):
        for words, make in cases.items():
            objects = make().objects
            yield f"=== {kind}: {words}\n"
            for each in objects.obj.get("status", {}).get("conditions", ()):
                yield f"{each['type']} {each['status']} {each['reason']}: {each['message']}\n"
            yield f"--- raytide why\n{click.unstyle(render(explain(objects, NOON), 'text'))}\n\n"


def test_texts_of_causes_are_the_approved_ones():
    found = "".join(texts())
    if os.environ.get("RAYTIDE_APPROVE"):
        APPROVED.write_text(found)
    assert found.split("\n=== ") == APPROVED.read_text().split("\n=== ")
