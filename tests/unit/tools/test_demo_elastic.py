"""The elastic demo: how it reads its jobs, what it draws, and when it succeeds."""

import io
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from rich.console import Console

import demo_elastic
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.validation import violations

from demo_cluster import DemoError
from demo_elastic_picture import COLOURS, JobLook, Picture


class Time:
    def __init__(self) -> None:
        self.s = 50.0

    def __call__(self) -> float:
        return self.s


def picture() -> Picture:
    """Ten seconds of one job of four, then ten of two by two."""
    time = Time()
    found = Picture(4, monotonic=time)
    for second in range(21):
        jobs = [JobLook("a", 4, 4, 1, 4)] if second < 10 else [JobLook("a", 2, 2, 1, 4), JobLook("b", 2, 2, 1, 4)]
        found.note(jobs)
        time.s += 1
    found.note_event("b", "ScaledUp 1→2 into free capacity")
    return found


def drawn(what, width=60) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(what)
    return console.file.getvalue()


def test_the_chart_stacks_running_trainers_up_to_what_fits():
    rows = [line for line in drawn(picture().chart(42)).splitlines() if "▏" in line]
    assert [row.partition("▏")[0].count("█") for row in rows] == [20, 20, 20, 20]
    assert "all that fits" in rows[0]
    spans = [(str(span.style), span.end - span.start) for span in picture().chart(42).spans]
    first, second = (sum(cells for style, cells in spans if style == f"{one} on {one}") for one in COLOURS[:2])
    assert (first, second) == (9 * 4 + 11 * 2, 11 * 2)


def test_unused_capacity_is_drawn_empty():
    found = Picture(4, monotonic=Time())
    found.note([JobLook("a", 3, 1, 1, 4)])
    rows = [line for line in drawn(found.chart(42)).splitlines() if "▏" in line]
    assert ["█" in row for row in rows] == [False, False, False, True]


def test_a_bar_shows_running_and_pending_trainers():
    found = Picture(4, monotonic=Time())
    found.note([JobLook("a", 3, 1, 1, 4, "Running", 7, 0.5)])
    (row,) = [line for line in drawn(found.bars(), 120).splitlines() if "Running" in line]
    assert "██░░░░" in row
    assert "3 of 1–4" in row
    assert "0.67" in row


def test_the_picture_fits_where_it_is_drawn():
    assert max(map(len, drawn(picture(), 50).splitlines())) <= 50


def test_the_svg_is_complete_and_has_no_external_references(tmp_path):
    picture().save(tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    assert "font-face" not in text
    assert "url(http" not in text
    assert "ScaledUp" in text


def test_a_demo_job_is_a_valid_copy_of_the_sample_and_twelve_trainers_fit():
    sample, _ = yaml.safe_load_all(demo_elastic.SAMPLE.read_text())
    before = yaml.safe_dump(sample)
    made = demo_elastic.demo_job(sample, "first")
    assert yaml.safe_dump(sample) == before
    job = TrainingJob.parse(made)
    assert violations(job) == ()
    assert (job.spec.trainer.min_instance, job.spec.trainer.ceiling) == (3, 12)
    (container,) = made["spec"]["master"]["template"]["spec"]["containers"]
    assert f"--tasks {demo_elastic.TASKS} --passes 1000" in container["command"][-1]
    millis = {role: int(cpu.removesuffix("m")) for role, cpu in demo_elastic.CPU.items()}
    per_node, remainder = divmod(demo_elastic.NODE_CPUS * 1000, millis["trainer"])
    assert per_node * demo_elastic.NODES == demo_elastic.SLOTS
    assert remainder >= millis["master"] + millis["pserver"]


def state(**changes):
    losses = [3.0 / (number + 1) for number in range(2 * demo_elastic.TASKS)]
    done = [
        {"pass": number // demo_elastic.TASKS, "task": number % demo_elastic.TASKS, "loss": loss}
        for number, loss in enumerate(losses)
    ]
    return {"finished": True, "dropped": [], "done": done} | changes


def test_the_report_of_a_finished_training_has_passes_and_loss():
    assert demo_elastic.check_outcome("a", state()).startswith("a 2 passes, loss ")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        pytest.param(state(finished=False), "not finished", id="it has not ended"),
        pytest.param(state(dropped=[{"task": 3}]), "'task': 3", id="a task was dropped"),
        pytest.param(state(done=state()["done"][1:]), r"\(0, 0\)", id="a task is missing"),
        pytest.param(state(done=[]), "has not done", id="nothing was done"),
        pytest.param(state(done=state()["done"][::-1]), "has not done|the loss went", id="the loss rose"),
    ],
)
def test_any_other_is_a_failure(found, message):
    with pytest.raises(DemoError, match=message):
        demo_elastic.check_outcome("a", found)


def test_the_committed_picture_is_one_of_the_demo():
    text = (Path(__file__).parents[3] / "docs" / "figures" / "demo-elastic.svg").read_text()
    assert "demo-elastic" in text
    assert "font-face" not in text
