"""The cause of a pending or failed pod."""

import itertools

import pytest

from raytide.api.pod import ContainerView, PodCondition
from raytide.api.pod_failure import Cause, failing_pod, failure_of, failure_of_rejection, is_namespace_terminating
from support.builders import NOT_READY, pending, pod, waiting


@pytest.mark.rule("SC:S21")
@pytest.mark.parametrize(
    ("view", "cause"),
    [
        pytest.param(pod(), None, id="a ready pod has no failure"),
        pytest.param(pending("a"), None, id="a pod that is merely pending has none"),
        pytest.param(
            pending("a", containers=(waiting("ray", "ContainerCreating"),)), None, id="starting is no failure"
        ),
        pytest.param(pending("a", init_containers=(waiting("w", "PodInitializing"),)), None, id="nor is initialising"),
        pytest.param(pending("a", containers=(waiting("ray", "ImagePullBackOff"),)), Cause.IMAGE, id="image"),
        pytest.param(pending("a", init_containers=(waiting("w", "ErrImagePull"),)), Cause.IMAGE, id="init image"),
        pytest.param(pod(ready=NOT_READY, containers=(waiting("ray", "CrashLoopBackOff"),)), Cause.CRASH, id="crash"),
        pytest.param(
            pending("a", containers=(waiting("ray", "CreateContainerConfigError"),)), Cause.CONFIG, id="config"
        ),
        pytest.param(
            pod(containers=(ContainerView("ray", "terminated", "CrashLoopBackOff"),)), None, id="only waiting counts"
        ),
        pytest.param(
            pending("a", scheduled=PodCondition("False", "Unschedulable", "no room")), Cause.UNSCHEDULABLE, id="no node"
        ),
        pytest.param(pending("a", scheduled=PodCondition("False", "SchedulingGated", "")), Cause.GATED, id="gated"),
    ],
)
def test_causes(view, cause):
    failure = failure_of(view)
    assert (failure.reason if failure else None) == cause


def test_the_message_of_kubernetes_is_kept():
    assert failure_of(pending("a", containers=(waiting("ray", "ErrImagePull", "not found"),))).message == (
        "container ray: ErrImagePull: not found"
    )


@pytest.mark.rule("FD:RC3-7")
@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ('Pod "demo-cpu-worker-*" is invalid: spec.initContainers[1].name: Duplicate value: "a"', Cause.INVALID),
        ('Role.rbac.authorization.k8s.io "x" is invalid: [rules[0].verbs: Required value, a: b]', Cause.INVALID),
        ('Service "x" is invalid: spec.ports[1].name: Duplicate value: "a"', Cause.INVALID),
        ('Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string', Cause.INVALID),
        ('admission webhook "w" denied the request: Pod "x" is invalid: no', Cause.FORBIDDEN),
        ('pods "x" is forbidden: ValidatingAdmissionPolicy denied request: it is invalid: no', Cause.FORBIDDEN),
        ('pods "x" is forbidden: exceeded quota: q, requested: pods=1', Cause.QUOTA),
        ('admission webhook "w" denied the request', Cause.FORBIDDEN),
        ('services "a" already exists, with another owner or group: it has no controller', Cause.NAME_TAKEN),
    ],
)
def test_rejections(message, cause):
    assert failure_of_rejection(message).reason == cause


def test_a_terminating_namespace_is_recognised():
    assert is_namespace_terminating("unable to create new content in namespace x because it is being terminated")
    assert not is_namespace_terminating("exceeded quota")


IMAGE = pending("b", containers=(waiting("ray", "ErrImagePull"),))
CRASH = pod("c", ready=NOT_READY, containers=(waiting("ray", "CrashLoopBackOff"),))
STARTING, WELL = pending("a"), pod("d")


@pytest.mark.rule("SC:S21")
@pytest.mark.parametrize(
    ("pods", "reason", "name"),
    [
        pytest.param((), "", None, id="no pods"),
        pytest.param((WELL,), "CrashLoop", None, id="all are ready"),
        pytest.param((STARTING, WELL), "CrashLoop", "a", id="one that is not ready"),
        pytest.param((STARTING, CRASH, IMAGE), "", "b", id="the first by name with a cause"),
        pytest.param((STARTING, IMAGE, CRASH), "CrashLoop", "c", id="the one with this cause"),
        pytest.param((STARTING, IMAGE, CRASH), "QuotaExceeded", "b", id="a cause that no pod has"),
        pytest.param((STARTING, CRASH.marked_terminating("now")), "CrashLoop", "a", id="not one that is going"),
    ],
)
def test_the_pod_to_look_at_does_not_depend_on_the_order(pods, reason, name):
    for some in itertools.permutations(pods):
        found = failing_pod(some, reason)
        assert (found.name if found else None) == name
