"""Texts of log lines, events and conditions are in the messages modules, so that they can be read in one go."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = Path(__file__).resolve().parents[3] / "operator/src/raytide"
BUILDERS = {"EventSpec", "ConditionUpdate", "LogLine"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def texts_in(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each literal of more than one word that a log call or a builder of messages gets."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and _is_message(call.func):
            for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                for part in ast.walk(argument):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str) and _has_words(part.value):
                        yield call.lineno, part.value


def _is_message(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in BUILDERS
    is_log = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "log"
    return is_log and function.attr in LEVELS


def _has_words(text: str) -> bool:
    return any(word.isalpha() for word in text.split()) and " " in text


def _modules() -> list[Path]:
    return [path for path in sorted(PRODUCT.rglob("*.py")) if path.name != "messages.py"]


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PRODUCT)))
def test_a_module_builds_no_message_in_place(path):
    assert list(texts_in(path.read_text())) == []


@pytest.mark.parametrize(
    "line",
    [
        'log.warning("cannot read %s", name)',
        'log.info(f"{count} pods are missing")',
        'EventSpec(reason, f"group {name} has failed")',
        'ConditionUpdate(kind, status=True, reason=reason, message="the head is gone")',
    ],
)
def test_a_text_in_place_is_found(line):
    assert len(list(texts_in(line))) > 0
