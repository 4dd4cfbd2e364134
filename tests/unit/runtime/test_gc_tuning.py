"""The garbage collector excludes long-lived objects, and still finds cycles."""

import gc
import weakref

import pytest

from raytide.runtime.gc_tuning import YOUNG_OBJECTS, tune_gc


class Link:
    next = None


@pytest.fixture(autouse=True)
def collector():
    before = gc.get_threshold()
    tune_gc()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_existing_objects_are_excluded_from_garbage_collection():
    assert gc.get_freeze_count() > 10_000


def test_cycles_are_found_once_enough_objects_have_come():
    link = Link()
    link.next = link
    gone = weakref.ref(link)
    del link
    assert gone() is not None
    young = [[] for _ in range(2 * YOUNG_OBJECTS)]
    assert gone() is None
    assert len(young) == 2 * YOUNG_OBJECTS
