"""The sentences of fair sharing, and which of them decided."""

import re

import pytest

from raytide.api.sharing_record import REBALANCED, RECLAIMED, ResizeNote, WaitingNote
from raytide.explain.explain import explain
from raytide.explain.sharing_sentences import SENTENCES, deciding
from support.distributions import ROOT
from support.explained import NOON, TRAININGJOBS


@pytest.mark.parametrize(
    ("resize", "waiting", "rebalances", "numbers"),
    [
        pytest.param("Growing", None, True, [], id="growth into free capacity needs no explanation"),
        pytest.param(
            RECLAIMED,
            WaitingNote("InsufficientResources", "", is_below_minimum=False),
            False,
            [5, 4],
            id="a minimum takes",
        ),
        pytest.param(REBALANCED, None, True, [7], id="it is far ahead"),
        pytest.param("", WaitingNote("HigherPriority", ""), True, [6], id="the capacity is held by a higher priority"),
        pytest.param("", WaitingNote("InsufficientGPU", ""), True, [6], id="its minimum has no capacity"),
        pytest.param(
            "", WaitingNote("InsufficientGPU", "", is_below_minimum=False), False, [4], id="it takes free capacity only"
        ),
        pytest.param(
            "", WaitingNote("Fragmented", "", is_below_minimum=False), True, [7], id="no job of its priority gives"
        ),
        pytest.param("", WaitingNote("Unsatisfiable", ""), True, [], id="no rule of fair sharing"),
    ],
)
def test_the_sentence_that_decided_is_named(resize, waiting, rebalances, numbers):
    last = ResizeNote(NOON, 3, 2, resize) if resize else None
    found = deciding(last, waiting, rebalances=rebalances)
    assert found == [f"Fair sharing, sentence {number}: {SENTENCES[number - 1]}" for number in numbers]


def test_raytide_why_names_it():
    found = explain(TRAININGJOBS["a job of higher priority holds the capacity"]().objects, NOON)
    assert f"Fair sharing, sentence 6: {SENTENCES[5]}" in found.notes


def test_the_sentences_are_those_of_the_decision_record():
    text = (ROOT / "docs/adr/0023-claims-and-donors.md").read_text()
    found = re.findall(r"^\d+\. (.+?)(?=\n\d+\. |\n\n)", text, re.MULTILINE | re.DOTALL)
    assert tuple(" ".join(sentence.split()) for sentence in found) == SENTENCES
