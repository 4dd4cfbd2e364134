"""A user's pod template merged into a generated pod."""

import copy
from typing import Any

import pytest

from raytide.api.pod_template_merge import merged_entries, merged_template

POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "a", "labels": {"ours": "1"}},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a"}],
        "containers": [
            {
                "name": "main",
                "image": "one",
                "command": ["run", "it"],
                "env": [
                    {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "B", "value": "2"},
                ],
                "ports": [{"name": "p", "containerPort": 80}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}


def merged(**spec: Any) -> dict[str, Any]:
    return merged_template(POD, {"spec": spec})["spec"]


def main_with(**container: Any) -> dict[str, Any]:
    (found,) = merged(containers=[{"name": "main", **container}])["containers"]
    return found


@pytest.mark.parametrize(
    ("container", "field", "expected"),
    [
        pytest.param({"image": "two"}, "image", "two", id="a value is replaced"),
        pytest.param({"image": "two"}, "command", ["run", "it"], id="what is not named stays"),
        pytest.param({"command": ["other"]}, "command", ["other"], id="a list without identities is replaced"),
        pytest.param({"command": None}, "command", None, id="null removes"),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}, {"name": "C", "value": "3"}]},
            "env",
            [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}],
            id="a variable takes the place of its name, whole",
        ),
        pytest.param(
            {"ports": [{"name": "q", "containerPort": 80}]}, "ports", [{"name": "q", "containerPort": 80}], id="a port"
        ),
        pytest.param(
            {"volumeMounts": [{"name": "w", "mountPath": "/w"}]},
            "volumeMounts",
            [{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/w"}],
            id="a new mount follows",
        ),
        pytest.param({"securityContext": {"runAsUser": 1}}, "securityContext", {"runAsUser": 1}, id="a new object"),
    ],
)
def test_a_container_is_merged_by_its_name(container, field, expected):
    assert main_with(**container).get(field) == expected


@pytest.mark.parametrize(
    ("spec", "field", "expected"),
    [
        pytest.param({"nodeSelector": {"zone": "a"}}, "nodeSelector", {"disk": "ssd", "zone": "a"}, id="objects merge"),
        pytest.param({"nodeSelector": {"disk": None}}, "nodeSelector", {}, id="null removes a key"),
        pytest.param({"tolerations": [{"key": "b"}]}, "tolerations", [{"key": "b"}], id="tolerations are replaced"),
        pytest.param(
            {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]},
            "volumes",
            [{"name": "v", "hostPath": {"path": "/x"}}],
            id="a volume has one source",
        ),
        pytest.param({"serviceAccountName": "sa"}, "serviceAccountName", "sa", id="a new field"),
        pytest.param({}, "restartPolicy", "Never", id="what is not named stays"),
    ],
)
def test_the_spec_is_a_merge_patch(spec, field, expected):
    assert merged(**spec).get(field) == expected


def test_further_containers_are_added_after_the_main_container():
    found = merged(containers=[{"name": "second"}], initContainers=[{"name": "first"}])
    assert [container["name"] for container in found["containers"]] == ["main", "second"]
    assert found["initContainers"] == [{"name": "first"}]


def test_labels_and_annotations_are_added_and_nothing_else_of_metadata():
    template = {"metadata": {"name": "b", "namespace": "c", "labels": {"theirs": "2"}, "annotations": {"n": "3"}}}
    assert merged_template(POD, template)["metadata"] == {
        "name": "a",
        "labels": {"ours": "1", "theirs": "2"},
        "annotations": {"n": "3"},
    }


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"spec": None, "metadata": None},
        {"spec": "text", "metadata": ["list"]},
        {"metadata": {"labels": "text", "annotations": 3}},
        {"spec": {"containers": None}},
        {"spec": {"containers": "text"}},
        {"spec": {"containers": ["text", None, 3]}},
        {"spec": {"containers": {"name": "main"}}},
        {"spec": {"volumes": "text"}},
    ],
)
def test_parts_of_a_wrong_type_change_nothing(template):
    assert merged_template(POD, template) == POD


def test_nothing_given_is_changed():
    before = copy.deepcopy(POD)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "env": [{"name": "B"}]}]}}
    given = copy.deepcopy(template)
    merged_template(POD, template)
    assert (before, given) == (POD, template)


def test_of_two_entries_with_one_name_the_later_counts():
    assert merged_entries([{"name": "a", "v": 1}], [{"name": "a", "v": 2}, {"name": "a", "v": 3}], "name") == [
        {"name": "a", "v": 3}
    ]
