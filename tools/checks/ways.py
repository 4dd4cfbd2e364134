"""Files on the way of a value from where it is read to the API call that follows from it, counted in a real pass.

Runs three scenarios of the simulation under `sys.setprofile`: an edit of a worker group's `replicas`, Ray tasks that an
autoscaled cluster has no nodes for, and a TrainingJob whose maximum is raised. What counts: whenever one of the way's
key functions begins, every file of raytide on the call stack at that moment, from the task's first frame to the key
function. Key functions are those that read the value, decide from it, build what is written, or write it. Stacks of what
only reports about a pass (status, events, log lines) do not count. A way ends in the client, because the simulation
replaces the transports below it (HTTP and gRPC).

Counts calls back into an earlier package of the autoscaler too (gcs, state, scheduling, scaling, reporting): one of its
functions is called from outside of it after a later package was entered in the same `reconcile`. Methods and properties
count, fields of values do not. Called by `make ways`; exit code 1 if a way has more files than its bar, a call back, or
a key function that was not called, because it was renamed or is not on the way any more.
"""

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "operator" / "src")]

from support import virtual_time  # noqa: E402 - the path first

from simulation import scenarios, training_scenarios  # noqa: E402 - same
from simulation.autoscaled_environment import AutoscaledEnvironment  # noqa: E402 - same
from simulation.demand_scenarios import autoscaled, demanded  # noqa: E402 - same
from simulation.environment import Environment, log_errors_as_violations  # noqa: E402 - same
from simulation.fault_matrix import KUBELETS  # noqa: E402 - same
from simulation.manifests import group  # noqa: E402 - same
from simulation.training_environment import TrainingEnvironment  # noqa: E402 - same
from simulation.training_manifests import new_job  # noqa: E402 - same

SOURCE = ROOT / "operator" / "src" / "raytide"
STEPS = tuple(f"autoscaler/{package}/" for package in ("gcs", "state", "scheduling", "scaling", "reporting"))
"""The autoscaler's packages in the order in which data passes through them."""
PASSES = ("autoscaler/sidecar/reconcile.py:reconcile", "autoscaler/sidecar/reconcile.py:plan_names")
"""Each starts again with state."""
REPORTS = (
    "controller/status_writer.py",
    "kube/event_recorder.py",
    "raycluster/spec_warnings.py",
    "raycluster/status.py",
    "trainingjob/events.py",
    "trainingjob/status.py",
)
"""Files that only report about a pass: stacks with one of them do not count."""

Call = tuple[str, str]
"""Calling and called function."""


@dataclass(frozen=True, slots=True)
class Way:
    """One value and the functions through which it passes, as `path:qualified name`."""

    name: str
    most_files: int
    play: Callable[["Tracer"], Awaitable[None]]
    key_functions: tuple[str, ...]
    within: str = ""
    """Only stacks with a file below this folder count: other processes of the scenario use the client too."""


@dataclass(slots=True)
class Tracer:
    """Profile function of one way; counts while `is_on`."""

    way: Way
    source: Path = SOURCE
    is_on: bool = False
    files: dict[str, set[str]] = field(default_factory=dict)
    """By file, the key functions on whose stacks it was."""
    called: set[str] = field(default_factory=set)
    calls_back: Counter[Call] = field(default_factory=Counter)
    _step: int = 0
    """The latest of `STEPS` that the current pass has entered."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Look at a call of one of the functions below `source`."""
        if not self.is_on or event != "call":
            return
        function = self._function(frame)
        if function in self.way.key_functions:
            self._note_files(function, frame)
        if function in PASSES:
            self._step = 0
        elif function.startswith(STEPS):
            self._note_step(function, frame)

    def _note_files(self, function: str, frame: FrameType) -> None:
        files = {name.partition(":")[0] for name in self._stack(frame)}
        if files.isdisjoint(REPORTS) and any(file.startswith(self.way.within) for file in files):
            self.called.add(function)
            for file in files:
                self.files.setdefault(file, set()).add(function)

    def _note_step(self, function: str, frame: FrameType) -> None:
        caller, *callers = (*self._stack(frame.f_back), "")
        if not any(name in PASSES for name in (caller, *callers)):
            return
        step = _step_of(function)
        if step < self._step and _step_of(caller) != step:
            self.calls_back[caller, function] += 1
        self._step = max(self._step, step)

    def _stack(self, frame: FrameType | None) -> Iterator[str]:
        """The functions below `source` on this stack, innermost first."""
        while frame is not None:
            if function := self._function(frame):
                yield function
            frame = frame.f_back

    def _function(self, frame: FrameType) -> str:
        path = frame.f_code.co_filename
        root = f"{self.source}/"
        return f"{path.removeprefix(root)}:{frame.f_code.co_qualname}" if path.startswith(root) else ""

    @property
    def uncalled(self) -> list[str]:
        """Key functions that were not called."""
        return [function for function in self.way.key_functions if function not in self.called]

    def report(self) -> Iterator[str]:
        """What was counted, as lines."""
        yield f"{self.way.name}: {len(self.files)} files (at most {self.way.most_files})"
        for file, functions in sorted(self.files.items()):
            own = sorted(name.partition(":")[2] for name in functions if name.startswith(f"{file}:"))
            yield f"  {file}" + (f": {', '.join(own)}" if own else "")
        if self.way.within:
            yield f"  calls back into an earlier package: {len(self.calls_back)}"
            yield from (f"    {caller} calls {called}" for caller, called in sorted(self.calls_back))
        yield from (f"  key function not called: {function}" for function in self.uncalled)

    @property
    def is_within_bars(self) -> bool:
        """Whether the way is no longer than allowed and complete."""
        return len(self.files) <= self.way.most_files and not self.calls_back and not self.uncalled


def _step_of(function: str) -> int:
    """The position of the function's package in `STEPS`; -1 for all others."""
    return next((position for position, step in enumerate(STEPS) if function.startswith(step)), -1)


# --- scenarios -------------------------------------------------------------------------------------------------------


async def replicas_of_a_group(tracer: Tracer) -> None:
    """A user raises `replicas` from 1 to 3."""
    env = Environment(1, kubelets=KUBELETS)
    with _started(env):
        await scenarios.live_cluster(env, group("a", 1, 9))
        tracer.is_on = True
        scenarios.edit(env, lambda spec: spec["workerGroupSpecs"][0].update(replicas=3))
        await env.settle()
        tracer.is_on = False
        await env.close()


async def demand(tracer: Tracer) -> None:
    """Users submit five tasks to a cluster without workers, and two of them are still there later."""
    env = AutoscaledEnvironment(1, kubelets=KUBELETS)
    with _started(env):
        await autoscaled(env, demanded("a", 4))
        tracer.is_on = True
        for tasks in (5, 2):
            env.ray.set_tasks(tasks)
            await env.settle()
        tracer.is_on = False
        await env.close()


async def replicas_of_a_job(tracer: Tracer) -> None:
    """A user raises the maximum of a job from 2 to 4: a sharing pass raises `replicas`, and two trainers follow."""
    env = TrainingEnvironment(1, kubelets=KUBELETS)
    with _started(env):
        await training_scenarios.start_jobs(env, new_job("a", 1, 2))
        tracer.is_on = True
        training_scenarios.edit(env, "a", lambda spec: spec["trainer"].update({"max-instance": 4}))
        await env.settle()
        tracer.is_on = False
        await env.close()


@contextmanager
def _started(env: Environment) -> Iterator[None]:
    with log_errors_as_violations(env.checks):
        env.open()
        yield


WAYS = (
    Way(
        "RayCluster, replicas of a worker group",
        26,
        replicas_of_a_group,
        (
            "controller/workqueue.py:WorkQueue.put",
            "controller/read_live.py:LiveReader.read",
            "api/raycluster.py:RayCluster.parse",
            "api/raycluster.py:WorkerGroupSpec.clamp",
            "raycluster/plan.py:plan",
            "raycluster/desired_replicas.py:ScalingState.desired_replicas_of",
            "raycluster/desired_replicas.py:clamp_replicas",
            "raycluster/desired_replicas.py:wanted_pods",
            "raycluster/observed.py:Observed.group",
            "raycluster/plan_worker_group.py:plan_group",
            "raycluster/plan_worker_group.py:unused_indices",
            "raycluster/pod_actions.py:create_workers",
            "raycluster/manifests/pods.py:worker_pod",
            "controller/executor.py:Executor.apply",
            "controller/executor.py:Executor._create",
            "kube/client.py:Client.create_and_decode",
        ),
    ),
    Way(
        "Ray demand to the RayCluster's patch",
        24,
        demand,
        (
            "autoscaler/gcs/messages.py:_Reader.demands",
            "autoscaler/state/cluster_state.py:read_cluster_state",
            "autoscaler/state/node_types.py:asked_resources",
            "autoscaler/scheduling/decide.py:run_scheduling",
            "autoscaler/scheduling/fallback.py:schedule_with_fallback",
            "autoscaler/scheduling/schedule.py:schedule",
            "autoscaler/scheduling/resource_shapes.py:RequestedNames.runs",
            "autoscaler/scheduling/packing.py:pack",
            "autoscaler/scheduling/scoring.py:NodeScorer.best",
            "autoscaler/scheduling/node_factory.py:NodeFactory.fresh",
            "autoscaler/scheduling/node_classes.py:NodeClasses.accept",
            "autoscaler/scheduling/session.py:launches_of",
            "autoscaler/feasibility.py:EmptyNodes.could_hold",
            "autoscaler/scheduling/decide.py:launches",
            "autoscaler/scaling/group_decisions.py:group_outcomes",
            "autoscaler/scaling/group_targets.py:group_target",
            "autoscaler/scaling/limit_reasons.py:reasons",
            "autoscaler/scaling/decision_patch.py:plan_patch",
            "autoscaler/scaling/decision_patch.py:change_between",
            "autoscaler/scaling/json_patch.py:build_patch",
            "api/autoscaler_decision.py:encode_record",
            "autoscaler/provider/provider.py:Provider.submit",
            "kube/client.py:Client.patch",
        ),
        within="autoscaler/",
    ),
    Way(
        "TrainingJob, replicas by the sharing pass",
        38,
        replicas_of_a_job,
        (
            "fairshare/job_view.py:shared_job",
            "api/trainingjob.py:TrainingJob.parse",
            "fairshare/eligibility.py:requested_replicas",
            "fairshare/participants.py:ParticipantBuilder.participant",
            "fairshare/algorithm/allocate.py:allocate",
            "fairshare/algorithm/grow.py:grow",
            "fairshare/algorithm/participant_state.py:larger_size",
            "fairshare/algorithm/scale_steps.py:next_step",
            "fairshare/algorithm/placement.py:ClusterCapacity.put",
            "fairshare/patch_plan.py:plan_patches",
            "api/sharing_record.py:encode_record",
            "fairshare/patcher.py:JobPatcher._patch",
            "kube/client.py:Client.patch",
            "controller/workqueue.py:WorkQueue.put",
            "controller/read_live.py:LiveReader.read",
            "api/trainingjob.py:TrainingJob.desired_replicas",
            "trainingjob/plan.py:plan",
            "trainingjob/trainer_indices.py:assign_trainers",
            "trainingjob/manifests/membership.py:membership_files",
            "trainingjob/manifests/objects.py:build_pods",
            "trainingjob/manifests/environment.py:environment",
            "controller/executor.py:Executor.apply",
            "controller/executor.py:Executor._create",
            "kube/client.py:Client.create_and_decode",
        ),
    ),
)


def trace(way: Way) -> Tracer:
    """Run the way's scenario once."""
    tracer = Tracer(way)
    before = sys.getprofile()
    sys.setprofile(tracer)
    try:
        virtual_time.run(way.play(tracer))
    finally:
        sys.setprofile(before)
    return tracer


def main() -> int:
    """Print all ways."""
    tracers = [trace(way) for way in WAYS]
    for tracer in tracers:
        print(*tracer.report(), sep="\n")
    return int(not all(tracer.is_within_bars for tracer in tracers))


if __name__ == "__main__":
    sys.exit(main())
