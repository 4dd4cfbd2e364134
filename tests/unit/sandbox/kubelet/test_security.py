"""Security contexts: pod and container settings combined, and runAsNonRoot."""

import pytest

from raytide_sandbox.container_runtime.interface import Image, Security
from raytide_sandbox.kubelet.podspec import PodSpecError, read_pod
from raytide_sandbox.kubelet.security import build_security
from support.kubelet_fakes import build_pod

ROOT_IMAGE = Image(name="busybox", image_id="x")
OTHER_IMAGE = Image(name="raytide", image_id="x", user=65532)


def security(of_pod=None, of_container=None, image=ROOT_IMAGE):
    raw = {"name": "c"} | ({"securityContext": of_container} if of_container else {})
    pod = read_pod(build_pod(raw, **({"securityContext": of_pod} if of_pod else {})))
    return build_security(pod, pod.containers[0], image)


@pytest.mark.parametrize(
    ("of_pod", "of_container", "expected"),
    [
        pytest.param(None, None, Security(), id="the default is root"),
        pytest.param({"runAsUser": 5, "runAsGroup": 6}, None, Security(user=5, group=6), id="the pod speaks for all"),
        pytest.param({"runAsUser": 5}, {"runAsUser": 0}, Security(), id="the container takes precedence, also with 0"),
        pytest.param({"runAsUser": "5"}, None, Security(user=5), id="a number in quotes is a number"),
        pytest.param({"runAsNonRoot": True, "runAsUser": 5}, None, Security(user=5), id="not root, with a user"),
        pytest.param({"runAsNonRoot": True}, {"runAsNonRoot": False}, Security(), id="a container may be let off"),
        pytest.param({"readOnlyRootFilesystem": True}, None, Security(), id="a pod has no root file system"),
        pytest.param(
            None,
            {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            Security(is_root_read_only=True, has_no_new_privileges=True),
            id="what a container may not do",
        ),
    ],
)
def test_both_contexts_are_merged(of_pod, of_container, expected):
    assert security(of_pod, of_container) == expected


def test_where_root_is_rejected_the_images_user_counts():
    assert security({"runAsNonRoot": True}, image=OTHER_IMAGE).user == 65532
    assert security(image=OTHER_IMAGE).user == 0


@pytest.mark.parametrize(
    ("of_pod", "words"),
    [
        pytest.param({"runAsNonRoot": True}, "image will run as root", id="the image is root's"),
        pytest.param({"runAsNonRoot": True, "runAsUser": 0}, "breaks non-root policy", id="root was requested"),
        pytest.param({"runAsUser": "me"}, "whole number", id="users are numbers"),
    ],
)
def test_what_cannot_be_is_reported(of_pod, words):
    with pytest.raises(PodSpecError, match=words):
        security(of_pod)
