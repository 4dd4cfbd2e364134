"""A merge patch turns the old object into the new one and contains nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.api.merge_patch import merge_difference

scalars = st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
values = st.recursive(
    scalars | st.lists(scalars, max_size=3),
    lambda inner: st.dictionaries(st.text("xyz", max_size=1), inner, max_size=3),
)
objects = st.dictionaries(st.text("xyz", max_size=1), values, max_size=4)


def apply(target, patch):
    """RFC 7386, section 2, word for word."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = apply(target.get(key), value)
    return target


def same(one, other):
    return repr(one) == repr(other) or one == other


@given(objects, objects)
def test_applying_the_difference_gives_the_new(old, new):
    assert same(apply(old, merge_difference(old, new)), new)


@given(objects)
def test_equal_objects_need_no_patch(same_object):
    assert merge_difference(same_object, dict(same_object)) == {}


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 3}, id="only what differs"),
        pytest.param({"a": 1}, {}, {"a": None}, id="null for what has to go"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}, id="objects are merged"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, {"a": [1]}, id="lists are replaced"),
        pytest.param({"a": "x"}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="a new kind of value replaces"),
    ],
)
def test_examples(old, new, patch):
    assert merge_difference(old, new) == patch
