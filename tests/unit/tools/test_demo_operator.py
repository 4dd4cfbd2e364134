"""The demo ends only the operator process that it has recorded."""

import json
import os
import sys

import pytest

from raytide_sandbox.state_dir import start_ticks

from demo_operator import DemoOperator


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "raytide"
    path.write_text(f"#!{sys.executable}\nimport signal\nsignal.pause()\n")
    path.chmod(0o755)
    return path


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # it is meant to outlive a demo
def test_a_later_demo_ends_what_an_earlier_one_started(tmp_path, program):
    DemoOperator(tmp_path, program).start()
    pid = json.loads((tmp_path / "operator.json").read_text())["pid"]
    assert start_ticks(pid) is not None
    assert DemoOperator(tmp_path, program).end()
    os.waitpid(pid, 0)
    assert not DemoOperator(tmp_path, program).end()


def test_a_later_process_with_the_same_number_is_left_alone(tmp_path, program):
    ours = os.getpid()
    (tmp_path / "operator.json").write_text(json.dumps({"pid": ours, "start_ticks": start_ticks(ours) - 1}))
    assert not DemoOperator(tmp_path, program).end()


@pytest.mark.parametrize("record", ["", "{}", '{"pid": 1'], ids=["empty", "without a number", "half written"])
def test_a_record_that_cannot_be_read_is_ignored(tmp_path, program, record):
    (tmp_path / "operator.json").write_text(record)
    assert not DemoOperator(tmp_path, program).end()
    assert not (tmp_path / "operator.json").exists()
