"""The effect that `raytide plan --submit` and the page of `raytide ui` predict is what happens after the submission.

Jobs run in the simulated cluster of the training benches until it is quiet. Then the effect of one more job is computed from the
objects, as the page does, the job is submitted, and hours later the sizes are compared. The scheduler places as it likes:
on the emptiest node or on the fullest one, where it does not take the node that the plan prefers. Seeds come from RAYTIDE_SEED.
"""

import json
import os
import random
from dataclasses import dataclass

import pytest

from raytide.api.config import SharingConfig
from raytide.cli.plan.from_files import PlanInputs
from raytide.cli.ui.what_if import effect_of, parse
from raytide.simulator.passes import TERMINATES_S
from support.training_policies import NAMESPACE, Raytide, manifest
from support.training_world import Ask, Circumstances, Job, SimNode, Submission, World

pytestmark = [pytest.mark.slow, pytest.mark.rule("TJ:7.15"), pytest.mark.timeout(600)]

SUBMISSIONS = 50
MAY_DIFFER = 3
"""Of half as many, where chance decides: one or two of a hundred do."""
HOUR_S = 3600.0
QUIET_S = 3 * HOUR_S
SEED = int(os.environ.get("RAYTIDE_SEED") or random.SystemRandom().randrange(10**6))


class Sharing(Raytide):
    """The operator's passes over jobs whose manifests are valid."""

    def submitted(self, job):
        """A new object in the API."""
        super().submitted(job)
        name = job.of.name
        self._manifests[name] = type(self._manifests[name]).parse(valid(self._manifests[name].raw))

    def inputs(self):
        """What `raytide plan` and the page read from the cluster."""
        pods = tuple(self._view(pod) for pod in self._world.pods.values())
        jobs = tuple(self._manifests.values())
        return PlanInputs(nodes=tuple(self._nodes), pods=pods, jobs=jobs, is_live=True)

    def effect(self, submission):
        """The sizes that the page shows for the time after the submission, by name."""
        obj = valid(manifest(Job(submission, submission.initial), self._now(), {}))
        answer = effect_of(parse(json.dumps(obj)), self.inputs(), NAMESPACE, config=SharingConfig(), now=self._now())
        assert answer["omitted"] == 0
        sizes = {job.of.name: job.wanted for job in self._world.jobs}
        return sizes | {each["name"]: each["with"] for each in (*answer["submitted"], *answer["others"])}


def valid(obj):
    """The manifest as a user writes it: with a program, and elastic without being fault-tolerant."""
    spec = {key: value for key, value in obj["spec"].items() if key != "fault_tolerant"}
    return {**obj, "spec": {**spec, "trainer": {**spec["trainer"], "entrypoint": "python train.py"}}}


@dataclass
class Drawn:
    """A quiet cluster with random jobs, and one more to submit."""

    world: World
    sharing: Sharing
    submission: Submission


def drawn(number, **circumstances):
    """The cluster of that number."""
    rng = random.Random(number)
    nodes = [SimNode(f"node-{n}", rng.choice([8, 16, 24, 32]) * 1000, 1 << 20) for n in range(rng.randint(1, 5))]
    sharing = Sharing()
    times = {"start_s": rng.choice([1.0, 10.0]), "stop_s": TERMINATES_S}
    world = World(nodes, sharing, Circumstances(**times | circumstances))

    def submission(name, at_s):
        low = rng.randint(1, 4)
        trainer = Ask(rng.choice([1, 2, 4, 8]) * 1000, 1)
        return Submission(name, at_s, low, low + rng.randint(0, 20), trainer, initial=low)

    at_s = 0.0
    for each in range(rng.randint(0, 5)):
        world.submit(submission(f"job-{each}", at_s))
        at_s += rng.choice([0.0, 5.0, 60.0, 900.0])
    world.run(at_s + QUIET_S)
    return Drawn(world, sharing, submission("new", world.now_s))


def compared(number, **circumstances):
    """The predicted sizes, and those hours after the submission."""
    here = drawn(number, **circumstances)
    predicted = here.sharing.effect(here.submission)
    here.world.submit(here.submission)
    here.world.run(here.world.now_s + QUIET_S)
    return predicted, {job.of.name: job.wanted for job in here.world.jobs}


def differing(numbers, **circumstances):
    """The numbers of the submissions after which other sizes were found than predicted."""
    pairs = {number: compared(number, **circumstances_of(number, circumstances)) for number in numbers}
    return [number for number, (predicted, found) in pairs.items() if predicted != found]


def circumstances_of(number, given):
    """The given ones; by default a scheduler that prefers empty nodes or full ones, and the assumed time to terminate."""
    return given or {"scheduler": ("spread", "pack")[number % 2]}


def test_the_predicted_sizes_are_those_after_each_of_fifty_submissions():
    assert differing(range(SUBMISSIONS)) == []


def test_so_they_are_after_submissions_that_differ_from_run_to_run():
    """One may differ: two of 2,800 did, where two plans were equally good and cooldowns decided."""
    assert len(found := differing(range(SEED, SEED + SUBMISSIONS // 2))) <= 1, f"RAYTIDE_SEED={SEED}: {found}"


def test_where_pods_terminate_one_after_another_and_go_anywhere_few_predictions_differ():
    """What cannot be known: when each pod is gone, and the node that a scheduler without preferences takes."""
    found = []
    for number in range(SEED, SEED + SUBMISSIONS // 2):
        stop_s = (1.0, 10.0, 31.0)[number % 3]
        found += differing([number], scheduler="random", seed=number, stop_s=stop_s)
    assert len(found) <= MAY_DIFFER, f"RAYTIDE_SEED={SEED}: {found}"


@pytest.mark.parametrize(
    ("seed", "scheduler"), [(44, "spread"), (101, "spread"), (36, "pack"), (98, "pack"), (135, "pack")]
)
def test_submissions_after_which_the_next_pass_alone_is_not_the_answer(seed, scheduler):
    """Found with a plan of one pass: a growth waits for a cooldown, and others get the capacity meanwhile."""
    predicted, found = compared(seed, scheduler=scheduler)
    assert predicted == found
