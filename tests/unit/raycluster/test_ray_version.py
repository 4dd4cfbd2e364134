"""Versions of Ray are read as KubeRay reads them (RC §1.3)."""

import pytest

from raytide.raycluster.spec_queries import is_at_least, parse_ray_version


@pytest.mark.rule("RC:V-49", "RC:PRB-1")
@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.52.0", (2, 52, 0)),
        ("2.52", (2, 52, 0)),
        ("v2.53.0rc1", (2, 53, 0)),
        ("2.53.1-py311-gpu", (2, 53, 1)),
        ("2.9.0.dev0", (2, 9, 0)),
        ("10.0.0", (10, 0, 0)),
        ("nightly", None),
        ("", None),
        ("2", None),
        ("v", None),
        ("2.", None),
        ("02.52", None),
        ("-2.52", None),
    ],
)
def test_a_version_is_at_least_two_numbers(text, version):
    assert parse_ray_version(text) == version


@pytest.mark.rule("RC:PRB-1")
@pytest.mark.parametrize(
    ("text", "is_new"),
    [("2.53.0", True), ("2.52.99", False), ("2.100.0", True), ("3.0", True), ("nightly", False)],
)
def test_versions_are_compared_as_numbers(text, is_new):
    assert is_at_least(text, (2, 53, 0)) is is_new
