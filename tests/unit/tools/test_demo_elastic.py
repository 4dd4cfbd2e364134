"""The elastic demo: which jobs it submits, what it prints, and when it succeeds."""

import io

import pytest
import yaml
from rich.console import Console

import demo_elastic
from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.validation import violations

from demo_cluster import DemoError


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
    assert per_node * demo_elastic.NODES == demo_elastic.CAPACITY
    assert remainder >= millis["master"] + millis["pserver"]


RESIZE = {"from": 0, "to": 3, "reason": "Admitted"}


async def test_a_decision_is_printed_once_in_the_operators_words_or_by_its_sizes():
    class Cluster:
        async def resizes(self, _name):
            return [RESIZE, RESIZE | {"message": "Scaled [up] to 6"}]

    console = Console(file=io.StringIO(), width=100)
    elastic = demo_elastic.Elastic(Cluster(), console, {})
    for _ in range(2):
        await elastic._print_resizes("first")
    assert console.file.getvalue() == "  +0 s  first: 0→3 Admitted\n  +0 s  first: Scaled [up] to 6\n"


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
