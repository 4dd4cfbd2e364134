"""The head service selects the head pod whatever labels the user sets, or an event names the label and what to delete."""

from typing import Any

import pytest

from raytide.api.config import ClusterConfig, PodConfig
from raytide.api.pod import pod_from_manifest
from raytide.raycluster.manifests.pods import build_head_pod
from raytide.raycluster.manifests.services import build_head_service
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from support.builders import HEAD_LABELS, head, head_service, parsed, pod, template

pytestmark = pytest.mark.rule("FD:RC3-4")

SELECTOR = dict(HEAD_LABELS)
APP_NAME, CREATED_BY, IDENTIFIER = "app.kubernetes.io/name", "app.kubernetes.io/created-by", "ray.io/identifier"
CHANGED = "the selector of service demo-head-svc was changed and may not select the head pod: delete the service, the operator creates it again"


def cluster_with(labels: dict[str, str] | None = None, group_labels: dict[str, str] | None = None) -> Any:
    own = {**template("ray-head"), "metadata": {"labels": labels or {}}}
    return parsed(headGroupSpec={"template": own, "labels": group_labels or {}, "rayStartParams": {}})


def service_and_head(cluster: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The selector of the service, and the labels of the pod."""
    service, pod = build_head_service(cluster, PodConfig()), build_head_pod(cluster, PodConfig(), "demo-head")
    return service["spec"]["selector"], pod["metadata"]["labels"]


@pytest.mark.rule("RC:HS-3")
@pytest.mark.parametrize(
    ("labels", "group_labels", "left_out"),
    [
        pytest.param({}, {}, set(), id="nothing is overridden: the selector is KubeRay's"),
        pytest.param({"team": "a"}, {"zone": "b"}, set(), id="labels that the selector does not name"),
        pytest.param({APP_NAME: "train"}, {}, {APP_NAME}, id="the template's name"),
        pytest.param({APP_NAME: "kuberay"}, {}, set(), id="the template repeats KubeRay's name"),
        pytest.param({}, {APP_NAME: "train"}, {APP_NAME}, id="the group's name"),
        pytest.param({APP_NAME: "a"}, {APP_NAME: "kuberay"}, set(), id="the group wins over the template"),
        pytest.param({CREATED_BY: "argo"}, {}, {CREATED_BY}, id="the creator"),
        pytest.param({IDENTIFIER: "mine"}, {}, {IDENTIFIER}, id="the identifier"),
        pytest.param(
            {"ray.io/cluster": "zzz", "ray.io/node-type": "x", "ray.io/group": "y"},
            {},
            set(),
            id="labels that are fixed",
        ),
    ],
)
def test_the_head_service_selects_the_head_pod(labels, group_labels, left_out):
    selector, of_pod = service_and_head(cluster_with(labels, group_labels))
    assert selector == {label: value for label, value in SELECTOR.items() if label not in left_out}
    assert selector.items() <= of_pod.items()


@pytest.mark.rule("RC:HS-3")
def test_the_service_itself_keeps_the_labels_by_which_it_is_found():
    service = build_head_service(cluster_with({IDENTIFIER: "mine", CREATED_BY: "me", APP_NAME: "a"}), PodConfig())
    assert service["metadata"]["labels"] == {**SELECTOR, APP_NAME: "a"}


def events(cluster: Any, selector: dict[str, str], *heads: Any) -> list[str]:
    observed = Observed(pods=(*heads, pod()), services=(head_service(selector=tuple(selector.items())),))
    todo = plan(cluster, observed, ClusterConfig(), str)
    assert [action for action in todo.actions if action.resource.kind == "Service"] == []
    found = [event for event in todo.events if event.reason == "HeadServiceChanged"]
    assert all(event.event_type == "Warning" for event in found)
    return [event.message for event in found]


@pytest.mark.rule("RC:HS-1", "RC:HS-3")
@pytest.mark.parametrize(
    ("selector", "messages"),
    [
        pytest.param(SELECTOR, [], id="as created"),
        pytest.param(
            {"ray.io/cluster": "demo", "ray.io/node-type": "head"}, [], id="without labels that are overridden"
        ),
        pytest.param({**SELECTOR, "ray.io/cluster": "other"}, [CHANGED], id="of another cluster"),
        pytest.param({**SELECTOR, "ray.io/node-type": "worker"}, [CHANGED], id="of workers"),
        pytest.param({**SELECTOR, "team": "a"}, [CHANGED], id="with another label"),
        pytest.param({"ray.io/cluster": "demo"}, [CHANGED], id="of all pods of the cluster"),
        pytest.param({}, [CHANGED], id="none"),
    ],
)
def test_a_selector_that_was_edited_is_reported(selector, messages):
    assert events(parsed(), selector, head()) == messages


def head_with(**labels: str) -> Any:
    return head(head_labels=tuple(sorted({**SELECTOR, **labels}.items())))


def test_a_service_whose_selector_is_outdated_names_the_label_and_what_to_delete():
    (message,) = events(
        cluster_with({APP_NAME: "after"}), {**SELECTOR, APP_NAME: "before"}, head_with(**{APP_NAME: "after"})
    )
    assert message == (
        "service demo-head-svc selects app.kubernetes.io/name=before, but head pod demo-head-aaaaa has "
        "app.kubernetes.io/name=after, so that the service has no endpoint: delete service demo-head-svc, the operator "
        "creates it again without labels that the spec overrides"
    )


def test_a_head_with_labels_of_an_earlier_spec_is_to_be_deleted():
    (message,) = events(cluster_with(), SELECTOR, head(head_labels=tuple(SELECTOR.items())[1:]))
    assert message == (
        "service demo-head-svc selects app.kubernetes.io/name=kuberay, but head pod demo-head-aaaaa has no label "
        "app.kubernetes.io/name, so that the service has no endpoint: delete pod demo-head-aaaaa, the operator creates it "
        "again with the labels of the spec"
    )


@pytest.mark.parametrize(
    "heads",
    [
        pytest.param((), id="without a head"),
        pytest.param((head_with(**{APP_NAME: "a"}), head("demo-head-bbbbb")), id="if another head is selected"),
        pytest.param((head(head_labels=(), deletion_timestamp="2026-01-01T00:00:00Z"),), id="of a terminating head"),
    ],
)
def test_nothing_is_reported(heads):
    assert events(parsed(), SELECTOR, *heads) == []


def test_the_view_of_a_head_has_the_labels_of_the_selector():
    manifest = build_head_pod(cluster_with({APP_NAME: "train", "team": "a"}), PodConfig(), "demo-head")
    assert dict(pod_from_manifest(manifest).head_labels) == {**SELECTOR, APP_NAME: "train"}
    manifest["metadata"]["labels"]["ray.io/node-type"] = "worker"
    assert pod_from_manifest(manifest).head_labels == ()
