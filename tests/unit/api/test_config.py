"""Every setting in `api/config.py` is read by a controller."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from raytide.api import config

SOURCE = Path(config.__file__).parents[1]
SETTINGS = [
    pytest.param(field.name, id=f"{kind.__name__}.{field.name}")
    for kind in (
        config.AutoscalerConfig,
        config.PodConfig,
        config.ClusterConfig,
        config.JobConfig,
        config.SharingConfig,
    )
    for field in fields(kind)
]


@pytest.fixture(scope="module")
def read_fields() -> set[str]:
    """Names in `config.name`, `_config.name`, `config.pods.name` and the like, but for the code that sets them."""
    texts = (path.read_text() for path in SOURCE.rglob("*.py") if path.parent.name not in {"api", "manager"})
    found = (match for text in texts for match in re.findall(r"config((?:\.[a-z0-9_]+)+)", text))
    return {name for dotted in found for name in dotted.split(".")}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_read(name, read_fields):
    assert name in read_fields
