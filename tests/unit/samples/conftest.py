"""The master of the sample, which is a program and not part of any package."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[3] / "samples" / "training" / "master.py"


@pytest.fixture(scope="session")
def master() -> ModuleType:
    """The module."""
    spec = importlib.util.spec_from_file_location("training_master", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
