"""The lifecycle of a pod as its kubelet runs and reports it, in virtual time without processes."""

import asyncio
import contextlib
import itertools
import signal

import pytest

from raytide_sandbox.kubelet.env import NodeFigures
from raytide_sandbox.kubelet.kubelet_context import Host
from raytide_sandbox.kubelet.podspec import read_pod
from raytide_sandbox.kubelet.podworker import PodWorker
from support.kubelet_fakes import FakeApi, FakeRuntime, Script, SilentEvents, build_pod, virtual_now

pytestmark = pytest.mark.looptime


class World:
    """One pod, its worker, and everything around it."""

    def __init__(self, pod, directory, runtime):
        self.runtime, self.api, self.events, self.raw = runtime, FakeApi(), SilentEvents(), pod
        host = Host(
            api=self.api,
            runtime=runtime,
            events=self.events,
            now=virtual_now,
            directory=directory,
            figures=NodeFigures(host_ip=runtime.node_address, allocatable={"cpu": "8", "memory": "32Gi"}),
            service_host=runtime.node_address,
            service_port=443,
        )
        self.worker = PodWorker(host, read_pod(pod))
        self.task = asyncio.create_task(self.worker.run())

    def delete(self, grace_s=None):
        metadata = {**self.raw["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        if grace_s is not None:
            metadata["deletionGracePeriodSeconds"] = grace_s
        self.raw = {**self.raw, "metadata": metadata}
        self.worker.update(self.raw)

    def state(self, name="c"):
        return self.entry(name)["state"]

    def entry(self, name="c"):
        entries = [*self.api.status["containerStatuses"], *self.api.status.get("initContainerStatuses", [])]
        return next(entry for entry in entries if entry["name"] == name)

    def condition(self, kind):
        return next(c for c in self.api.status["conditions"] if c["type"] == kind)["status"]

    def is_forgotten(self):
        return ("DELETE", "/api/v1/namespaces/default/pods/p") in self.api.writes


@pytest.fixture
async def live(tmp_path):
    """Start a pod; whatever still runs at the end of the test is put away."""
    worlds = []

    def start(pod, **runtime):
        worlds.append(World(pod, tmp_path, FakeRuntime(**runtime)))
        return worlds[-1]

    yield start
    for world in worlds:
        world.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await world.task


# --- starting --------------------------------------------------------------------------------------------------------
async def test_a_pod_runs_and_is_ready_with_an_address(live):
    world = live(build_pod())
    await asyncio.sleep(1)
    assert world.api.status["phase"] == "Running"
    assert world.api.status["podIP"] == "10.88.0.2"
    assert world.state() == {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    assert {kind: world.condition(kind) for kind in ("Ready", "Initialized", "PodScheduled")} == dict.fromkeys(
        ("Ready", "Initialized", "PodScheduled"), "True"
    )


async def test_an_equal_status_is_not_written_twice(live):
    world = live(build_pod())
    await asyncio.sleep(1)
    before = len(world.api.statuses)
    world.worker.update(dict(world.raw))
    await asyncio.sleep(1000)
    assert len(world.api.statuses) == before


async def test_a_rejected_status_is_written_again(live):
    world = live(build_pod())
    world.api.failures = 3
    await asyncio.sleep(10)
    assert world.api.status["phase"] == "Running"


async def test_init_containers_run_one_after_the_other_before_the_others(live):
    scripts = {"first": [Script(2)], "second": [Script(3)]}
    world = live(build_pod(inits=["first", "second"]), scripts=scripts)
    await asyncio.sleep(10)
    assert [(round(at), name) for at, name in world.runtime.started] == [(0, "first"), (2, "second"), (5, "c")]
    assert world.api.seen(lambda s: s["phase"]) == ["Pending", "Running"]
    assert world.entry("first")["ready"] is True


async def test_a_failing_init_container_is_restarted_and_delays_the_main_containers(live):
    world = live(build_pod(inits=["first"]), scripts={"first": [Script(1, 1), Script(1, 1), Script(1, 0)]})
    await asyncio.sleep(8)
    assert world.state("first")["waiting"]["reason"] == "CrashLoopBackOff"
    assert world.state("c")["waiting"]["reason"] == "PodInitializing"
    await asyncio.sleep(10)
    assert world.state("c").keys() == {"running"}
    assert world.entry("first")["restartCount"] == 2


async def test_a_pod_that_never_restarts_fails_with_its_init_container(live):
    world = live(build_pod(inits=["first"], restartPolicy="Never"), scripts={"first": [Script(1, 7)]})
    await asyncio.sleep(5)
    assert world.api.status["phase"] == "Failed"
    assert world.runtime.starts_of("c") == []
    assert world.state("first")["terminated"]["exitCode"] == 7


async def test_a_sidecar_lets_the_next_one_start_once_it_has_started_and_ends_after_the_others(live):
    sidecar = {"name": "side", "restartPolicy": "Always"}
    world = live(
        build_pod(inits=[sidecar, "setup"], restartPolicy="Never"), scripts={"setup": [Script(1)], "c": [Script(5)]}
    )
    await asyncio.sleep(2)
    assert world.runtime.running() == ["c", "side"]
    await asyncio.sleep(10)
    assert world.runtime.running() == []
    assert world.api.status["phase"] == "Succeeded"


async def test_what_cannot_be_mounted_holds_up_the_pod_until_it_is_there(live):
    pod = build_pod(volumes=[{"name": "v", "configMap": {"name": "settings"}}])
    world = live(pod)
    await asyncio.sleep(3)
    assert world.state()["waiting"]["reason"] == "ContainerCreating"
    assert "FailedMount" in world.events.reasons()
    world.api.add("/api/v1/namespaces/default/configmaps/settings", {"data": {"a": "b"}})
    await asyncio.sleep(10)
    assert world.api.status["phase"] == "Running"


async def test_a_sandbox_that_does_not_come_up_is_tried_again(live):
    world = live(build_pod(), sandbox_failures=2)
    await asyncio.sleep(12)
    assert world.api.status["phase"] == "Running"
    assert "FailedCreatePodSandBox" in world.events.reasons()


# --- what prevents a start ---------------------------------------------------------------------------------------------
async def test_an_unknown_image_is_an_err_image_pull_and_then_a_back_off(live):
    world = live(build_pod({"name": "c", "image": "nowhere/x:1"}))
    await asyncio.sleep(60)
    reasons = world.api.seen(lambda s: s["containerStatuses"][0]["state"]["waiting"]["reason"])
    assert reasons == ["ErrImagePull", "ImagePullBackOff"] * 3
    assert world.events.events[-2:] == [
        ("BackOff", 'Back-off pulling image "nowhere/x:1"'),
        ("Failed", "Error: ImagePullBackOff"),
    ]
    assert world.api.status["phase"] == "Pending"


async def test_an_image_that_appears_later_starts(live):
    world = live(build_pod({"name": "c", "image": "late"}))
    await asyncio.sleep(5)
    world.runtime.images.add("late")
    await asyncio.sleep(10)
    assert world.api.status["phase"] == "Running"
    assert world.entry()["restartCount"] == 0


async def test_a_missing_config_map_is_a_config_error_until_it_is_there(live):
    reference = {"configMapKeyRef": {"name": "settings", "key": "a"}}
    world = live(build_pod({"name": "c", "env": [{"name": "A", "valueFrom": reference}]}))
    await asyncio.sleep(3)
    assert world.state()["waiting"] == {
        "reason": "CreateContainerConfigError",
        "message": 'configmap "settings" not found',
    }
    world.api.add("/api/v1/namespaces/default/configmaps/settings", {"data": {"a": "b"}})
    await asyncio.sleep(10)
    assert world.runtime.containers[-1].config.env["A"] == "b"


async def test_a_command_that_does_not_exist_counts_as_a_crash(live):
    world = live(build_pod(), scripts={"c": [Script(error="no such file: run")]})
    await asyncio.sleep(5)
    assert world.state()["waiting"]["reason"] == "CrashLoopBackOff"
    assert world.entry()["lastState"]["terminated"]["reason"] == "StartError"
    assert world.entry()["lastState"]["terminated"]["exitCode"] == 128


async def test_a_container_without_a_command_waits_with_an_error(live):
    world = live(build_pod({"name": "c", "command": []}))
    await asyncio.sleep(3)
    assert world.state()["waiting"] == {"reason": "CreateContainerError", "message": "no command specified"}


# --- restarts ----------------------------------------------------------------------------------------------------------
async def test_a_crashing_container_is_restarted_at_once_then_after_10_20_40_seconds(live):
    world = live(build_pod(), scripts={"c": [Script(0, 1)]})
    await asyncio.sleep(100)
    assert [round(at) for at in world.runtime.starts_of("c")] == [0, 0, 10, 30, 70]
    assert world.entry()["restartCount"] == 4
    waiting = world.state()["waiting"]
    assert waiting["reason"] == "CrashLoopBackOff"
    assert waiting["message"] == "back-off 1m20s restarting failed container=c pod=p_default(11111111-2222)"
    assert world.api.status["phase"] == "Running"
    messages = [message for reason, message in world.events.events if reason == "BackOff"]
    assert messages == ["Back-off restarting failed container c in pod p_default(11111111-2222)"] * 4


async def test_the_backoff_is_at_most_five_minutes_and_reset_after_ten_minutes_of_running(live):
    crashes = [Script(0, 1)] * 8
    world = live(build_pod(), scripts={"c": [*crashes, Script(601, 1), Script(0, 1), Script()]})
    await asyncio.sleep(10_000)
    starts = [round(at) for at in world.runtime.starts_of("c")]
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert gaps == [0, 10, 20, 40, 80, 160, 300, 300, 601, 10]


async def test_with_on_failure_only_failures_are_restarted(live):
    world = live(build_pod(restartPolicy="OnFailure"), scripts={"c": [Script(1, 1), Script(1, 0)]})
    await asyncio.sleep(5)
    assert world.api.status["phase"] == "Succeeded"
    assert world.entry()["restartCount"] == 1
    assert world.state()["terminated"]["reason"] == "Completed"
    assert world.condition("Ready") == "False"


async def test_with_never_an_exit_code_fails_the_pod(live):
    world = live(build_pod(restartPolicy="Never"), scripts={"c": [Script(1, 137)]})
    await asyncio.sleep(2)
    assert world.api.status["phase"] == "Failed"
    ended = world.state()["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "Error")
    assert "signal" not in ended


async def test_one_failed_container_of_a_pod_that_never_restarts_leaves_the_other_running(live):
    world = live(build_pod("a", "b", restartPolicy="Never"), scripts={"a": [Script(1, 1)], "b": [Script(5)]})
    await asyncio.sleep(3)
    assert world.api.status["phase"] == "Running"
    await asyncio.sleep(3)
    assert world.api.status["phase"] == "Failed"


async def test_the_termination_message_is_in_the_status(live):
    world = live(build_pod(restartPolicy="Never"), scripts={"c": [Script(1, 1, last_words="out of luck")]})
    await asyncio.sleep(2)
    assert world.state()["terminated"]["message"] == "out of luck"


async def test_a_lost_sandbox_is_recreated_and_runs_the_init_containers_again(live):
    world = live(build_pod(inits=["first"]), scripts={"first": [Script(1)]})
    await asyncio.sleep(3)
    world.runtime.sandboxes[0].die()
    await asyncio.sleep(3)
    assert [name for _, name in world.runtime.started] == ["first", "c", "first", "c"]
    assert world.api.status["podIP"] == "10.88.0.3"
    assert world.entry("c")["restartCount"] == 1
    assert world.entry("c")["lastState"]["terminated"]["exitCode"] == 137
    assert "SandboxChanged" in world.events.reasons()


async def test_a_lost_sandbox_ends_a_pod_that_never_restarts(live):
    world = live(build_pod(restartPolicy="Never"))
    await asyncio.sleep(3)
    world.runtime.sandboxes[0].die()
    await asyncio.sleep(3)
    assert world.api.status["phase"] == "Failed"
    assert len(world.runtime.sandboxes) == 1


async def test_the_deadline_of_a_pod_ends_it(live):
    world = live(build_pod(activeDeadlineSeconds=60))
    await asyncio.sleep(59)
    assert world.api.status["phase"] == "Running"
    await asyncio.sleep(3)
    assert (world.api.status["phase"], world.api.status["reason"]) == ("Failed", "DeadlineExceeded")
    assert world.runtime.running() == []


# --- probes ------------------------------------------------------------------------------------------------------------
async def test_a_container_is_ready_only_once_its_probe_succeeds(live):
    probe = {"exec": {"command": ["ready"]}, "periodSeconds": 5}
    world = live(build_pod({"name": "c", "readinessProbe": probe}), exec_codes={"ready": 1})
    await asyncio.sleep(7)
    assert world.condition("Ready") == "False"
    world.runtime.exec_codes["ready"] = 0
    await asyncio.sleep(5)
    assert world.condition("Ready") == "True"


async def test_a_container_that_is_no_longer_alive_is_restarted(live):
    probe = {"exec": {"command": ["alive"]}, "periodSeconds": 5, "failureThreshold": 2}
    world = live(build_pod({"name": "c", "livenessProbe": probe}), exec_codes={"alive": 1})
    await asyncio.sleep(8)
    assert world.entry()["restartCount"] == 1
    assert world.entry()["lastState"]["terminated"]["exitCode"] == 143
    assert world.runtime.containers[0].signals == [signal.SIGTERM]


async def test_no_other_probe_runs_before_the_startup_probe_has_succeeded(live):
    probes = {"startupProbe": {"exec": {"command": ["up"]}}, "readinessProbe": {"exec": {"command": ["ready"]}}}
    world = live(build_pod({"name": "c", **probes}), exec_codes={"up": 1})
    await asyncio.sleep(15)
    assert world.entry()["started"] is False
    assert ("ready",) not in world.runtime.execs
    world.runtime.exec_codes["up"] = 0
    await asyncio.sleep(11)
    assert (world.entry()["started"], world.entry()["ready"]) == (True, True)


# --- deletion ----------------------------------------------------------------------------------------------------------
async def test_deletion_sends_sigterm_and_then_removes_the_pod(live):
    world = live(build_pod())
    await asyncio.sleep(1)
    world.delete(30)
    await asyncio.wait_for(world.task, 5)
    assert world.runtime.containers[0].signals == [signal.SIGTERM]
    assert world.api.status["phase"] == "Failed"
    assert world.is_forgotten()
    assert not world.runtime.sandboxes[0].is_alive


async def test_what_ignores_sigterm_is_killed_when_the_grace_is_over(live):
    world = live(build_pod(), scripts={"c": [Script(term_s=None)]})
    await asyncio.sleep(1)
    world.delete(20)
    await asyncio.sleep(19)
    assert world.runtime.running() == ["c"]
    await asyncio.wait_for(world.task, 3)
    assert world.state()["terminated"]["exitCode"] == 137


async def test_a_second_deletion_with_less_grace_shortens_the_wait(live):
    world = live(build_pod(), scripts={"c": [Script(term_s=None)]})
    await asyncio.sleep(1)
    world.delete(300)
    await asyncio.sleep(5)
    world.delete(0)
    await asyncio.wait_for(world.task, 2)
    assert world.is_forgotten()


async def test_without_a_period_of_its_own_a_deletion_uses_the_pods(live):
    world = live(build_pod(terminationGracePeriodSeconds=3), scripts={"c": [Script(term_s=None)]})
    await asyncio.sleep(1)
    world.delete()
    await asyncio.wait_for(world.task, 4)
    assert world.is_forgotten()


async def test_a_pre_stop_hook_runs_before_sigterm(live):
    hook = {"preStop": {"sleep": {"seconds": 4}}}
    world = live(build_pod({"name": "c", "lifecycle": hook}))
    await asyncio.sleep(1)
    world.delete(30)
    await asyncio.sleep(3)
    assert world.runtime.containers[0].signals == []
    await asyncio.wait_for(world.task, 3)
    assert world.runtime.containers[0].signals == [signal.SIGTERM]


async def test_sidecars_get_sigterm_only_after_the_other_containers_have_ended(live):
    sidecar = {"name": "side", "restartPolicy": "Always"}
    world = live(build_pod(inits=[sidecar]), scripts={"c": [Script(term_s=5)]})
    await asyncio.sleep(1)
    world.delete(30)
    await asyncio.sleep(4)
    side = next(c for c in world.runtime.containers if c.config.name == "side")
    assert side.signals == []
    await asyncio.wait_for(world.task, 5)
    assert side.signals == [signal.SIGTERM]


async def test_a_pod_in_crash_loop_backoff_is_deleted_at_once(live):
    world = live(build_pod(), scripts={"c": [Script(0, 1)]})
    await asyncio.sleep(5)
    world.delete(30)
    await asyncio.wait_for(world.task, 1)
    assert world.is_forgotten()


async def test_a_pod_missing_in_the_api_is_killed_and_not_deleted_again(live):
    world = live(build_pod(), scripts={"c": [Script(term_s=None)]})
    await asyncio.sleep(1)
    world.worker.vanish()
    await asyncio.wait_for(world.task, 1)
    assert world.runtime.running() == []
    assert not world.is_forgotten()


async def test_a_failed_post_start_hook_restarts_the_container(live):
    hook = {"postStart": {"exec": {"command": ["greet"]}}}
    world = live(build_pod({"name": "c", "lifecycle": hook}), exec_codes={"greet": 1})
    await asyncio.sleep(2)
    assert world.entry()["restartCount"] >= 1
    assert "FailedPostStartHook" in world.events.reasons()


# --- after a restart of the kubelet ------------------------------------------------------------------------------------
def _old_status(state, phase="Running", **entry):
    return {
        "phase": phase,
        "startTime": "2025-12-31T23:00:00Z",
        "containerStatuses": [{"name": "c", "state": state, "restartCount": 2, **entry}],
    }


async def test_what_ran_under_an_earlier_kubelet_is_restarted_and_counted(live):
    world = live(build_pod(status=_old_status({"running": {"startedAt": "2025-12-31T23:00:00Z"}})))
    await asyncio.sleep(1)
    assert world.entry()["restartCount"] == 3
    lost = world.entry()["lastState"]["terminated"]
    assert (lost["exitCode"], lost["reason"]) == (137, "ContainerStatusUnknown")
    assert world.api.status["startTime"] == "2025-12-31T23:00:00Z"


async def test_a_pod_that_ran_under_an_earlier_kubelet_fails_with_restart_policy_never(live):
    status = _old_status({"running": {"startedAt": "2025-12-31T23:00:00Z"}})
    world = live(build_pod(status=status, restartPolicy="Never"))
    await asyncio.sleep(1)
    assert world.api.status["phase"] == "Failed"
    assert world.runtime.started == []


async def test_a_pod_that_had_ended_stays_ended_until_it_is_deleted(live):
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2025-12-31T23:30:00Z"}}
    world = live(build_pod(status=_old_status(ended, "Succeeded"), restartPolicy="Never"))
    await asyncio.sleep(100)
    assert world.runtime.started == []
    world.delete(30)
    await asyncio.wait_for(world.task, 1)
    assert world.is_forgotten()


async def test_nothing_of_a_pod_is_left_when_its_worker_is_cancelled(live, tmp_path):
    world = live(build_pod(volumes=[{"name": "v", "emptyDir": {}}]))
    await asyncio.sleep(1)
    world.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await world.task
    assert world.runtime.running() == []
    assert list(tmp_path.iterdir()) == []
    assert not world.is_forgotten()
