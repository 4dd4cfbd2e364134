"""A sample of `make properties`, and what it does with an unexpected exception."""

import itertools
import os
import random
from types import SimpleNamespace

import pytest

import fuzz

SEED = int(os.environ.get("RAYTIDE_SEED", "0"))


@pytest.mark.rule("SE:C24")
def test_no_input_of_a_sample_raises_an_unexpected_exception():
    found = fuzz.fuzz(10_000, SEED)
    assert sum(found.values()) == 10_000
    rare = {"raycluster valid", "raycluster violations", "raycluster rejected", "trainingjob violations"}
    assert rare <= set(found), "each part of the code is reached"


def test_an_unexpected_exception_names_the_input_that_repeats_it(monkeypatch):
    def fails(rng: random.Random) -> str:
        raise KeyError("spec")

    monkeypatch.setattr(fuzz, "CHECKS", ((fails, 1),))
    with pytest.raises(KeyError) as raised:
        fuzz.fuzz(3, 41)
    assert raised.value.__notes__ == ["repeat it by: .venv/bin/python tests/fuzz.py --inputs 1 --seed 41"]


def test_a_quantity_that_is_read_wrongly_is_an_error(monkeypatch):
    numbers = itertools.count()
    monkeypatch.setattr(fuzz, "Quantity", SimpleNamespace(parse=lambda _: next(numbers)))
    with pytest.raises(fuzz.UnexpectedResultError, match="is not read again from 0"):
        fuzz.check_quantity(random.Random(0))


def test_a_patch_that_does_not_give_the_second_object_is_an_error(monkeypatch):
    monkeypatch.setattr(fuzz, "merge_difference", lambda old, new: {"never": "there"})
    with pytest.raises(fuzz.UnexpectedResultError, match="applied to"):
        fuzz.check_patch(random.Random(0))
