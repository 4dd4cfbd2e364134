"""Files and callbacks that `ways.py` counts, in a small program with known calls."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ways

READ = "def read(size):\n    return size\n\ndef shape(size):\n    return size\n"
DECIDE = "def decide(size, shape):\n    return shape(size)\n"
WRITE = "def write(size):\n    return size\n"
WRITTEN = "kube/client.py:write"


@pytest.fixture
def traced(tmp_path: Path):
    """Trace `main(functions)` of a program with these key functions."""

    def run(main: str, *key_functions: str, within: str = "") -> ways.Tracer:
        functions: dict[str, Callable[..., Any]] = {}
        tracer = ways.Tracer(ways.Way("size", 3, None, key_functions, within), source=tmp_path, is_on=True)
        for path, text in {
            "autoscaler/state/read.py": READ,
            "autoscaler/scheduling/decide.py": DECIDE,
            "kube/client.py": WRITE,
            "controller/status_writer.py": "def report(write):\n    return write(0)\n",
            "autoscaler/sidecar/reconcile.py": main,
        }.items():
            exec(compile(text, f"{tmp_path}/{path}", "exec"), functions)
        sys.setprofile(tracer)
        try:
            functions["reconcile"]()
        finally:
            sys.setprofile(None)
        return tracer

    return run


def test_every_file_on_the_stack_of_a_key_function_counts(traced):
    tracer = traced("def reconcile():\n    return write(decide(read(3), str))", WRITTEN)
    assert tracer.files == {"autoscaler/sidecar/reconcile.py": {WRITTEN}, "kube/client.py": {WRITTEN}}
    assert list(tracer.report()) == [
        "size: 2 files (at most 3)",
        "  autoscaler/sidecar/reconcile.py",
        "  kube/client.py: write",
    ]
    assert tracer.is_within_bars


def test_stacks_of_reports_and_of_other_processes_do_not_count(traced):
    assert not traced("def reconcile():\n    return report(write)", WRITTEN).files
    assert not traced("def reconcile():\n    return write(1)", WRITTEN, within="raycluster/").files


def test_a_way_with_more_files_than_its_bar_fails(traced):
    keys = ("autoscaler/state/read.py:read", "autoscaler/scheduling/decide.py:decide", WRITTEN)
    tracer = traced("def reconcile():\n    return write(decide(read(3), str))", *keys)
    assert len(tracer.files) == 4
    assert not tracer.is_within_bars


def test_a_key_function_that_is_not_called_fails(traced):
    tracer = traced("def reconcile():\n    return write(1)", WRITTEN, "autoscaler/state/read.py:read")
    assert list(tracer.report())[-1] == "  key function not called: autoscaler/state/read.py:read"
    assert not tracer.is_within_bars


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        pytest.param("decide(read(3), str)", [], id="from one package to the next"),
        pytest.param("decide(read(3), shape)", [("scheduling/decide.py:decide", "state/read.py:shape")], id="from it"),
        pytest.param(
            "read(decide(3, str))",
            [("sidecar/reconcile.py:reconcile", "state/read.py:read")],
            id="after it, by the caller",
        ),
    ],
)
def test_calls_back_into_an_earlier_package(traced, main, expected):
    tracer = traced(f"def reconcile():\n    return {main}", within="autoscaler/")
    assert sorted(tracer.calls_back) == [
        (f"autoscaler/{caller}", f"autoscaler/{called}") for caller, called in expected
    ]
    assert tracer.is_within_bars == (not expected)


def test_each_pass_begins_with_state_again(traced):
    again = (
        "def plan_names():\n    return read(1)\n\ndef reconcile():\n    decide(read(1), str)\n    return plan_names()"
    )
    assert not traced(again, within="autoscaler/").calls_back


def test_the_exit_code_is_1_if_a_way_exceeds_its_bar(monkeypatch, capsys):
    async def nothing(_):
        return None

    monkeypatch.setattr(ways, "WAYS", (ways.Way("size", 0, nothing, ()),))
    assert ways.main() == 0
    monkeypatch.setattr(ways, "WAYS", (ways.Way("size", 0, nothing, (WRITTEN,)),))
    assert ways.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "size: 0 files (at most 0)",
        "size: 0 files (at most 0)",
        f"  key function not called: {WRITTEN}",
    ]


@pytest.mark.looptime
@pytest.mark.parametrize("way", ways.WAYS, ids=lambda way: way.name)
def test_a_real_pass_is_within_the_bars(way):
    tracer = ways.trace(way)
    assert tracer.is_within_bars, "\n".join(tracer.report())
