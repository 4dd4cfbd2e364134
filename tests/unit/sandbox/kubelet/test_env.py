"""Environment and command line of a container."""

import base64

import pytest

from raytide_sandbox.kubelet.env import (
    ConfigMissingError,
    NodeFigures,
    PodSurroundings,
    build_argv,
    build_environment,
    references,
)
from raytide_sandbox.kubelet.podspec import PodSpecError, read_pod
from support.kubelet_fakes import build_pod

NODE = NodeFigures(host_ip="10.88.0.1", allocatable={"cpu": "8", "memory": "32Gi"})
AROUND = PodSurroundings(pod_ip="10.88.0.7", node=NODE, service_host="10.88.0.1", service_port=443)
SOURCES = {
    ("configmap", "settings"): {"data": {"color": "red", "not a name": "x"}},
    ("secret", "keys"): {"data": {"password": base64.b64encode(b"hush").decode()}},
}


def environment(env=(), env_from=(), container=None, **pod):
    raw = build_pod({"name": "c", "env": list(env), "envFrom": list(env_from), **(container or {})}, **pod)
    parsed = read_pod(raw)
    return build_environment(parsed, parsed.containers[0], AROUND, SOURCES)


def field(path):
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


def key(kind, name, entry, **more):
    return {"name": "X", "valueFrom": {kind: {"name": name, "key": entry, **more}}}


def amount(resource, **more):
    return {"name": "X", "valueFrom": {"resourceFieldRef": {"resource": resource, **more}}}


LIMITED = {"resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "250m"}}}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param([{"name": "X", "value": "a"}], "a", id="a literal"),
        pytest.param([{"name": "X", "value": 8265}], "8265", id="a number that YAML made of a port"),
        pytest.param([{"name": "X", "value": True}], "true", id="a boolean that YAML read from an unquoted value"),
        pytest.param([{"name": "X"}], "", id="nothing at all is empty"),
        pytest.param([{"name": "A", "value": "1"}, {"name": "X", "value": "$(A)/$(A)"}], "1/1", id="a reference back"),
        pytest.param(
            [{"name": "X", "value": "$(LATER)"}, {"name": "LATER", "value": "1"}], "$(LATER)", id="not forward"
        ),
        pytest.param([{"name": "A", "value": "1"}, {"name": "X", "value": "$$(A)"}], "$(A)", id="two dollars escape"),
        pytest.param([{"name": "X", "value": "$HOME $(pwd x"}], "$HOME $(pwd x", id="a shell's dollars stay"),
        pytest.param([field("metadata.name")], "p", id="the pod's name"),
        pytest.param([field("metadata.labels['app']")], "web", id="a label"),
        pytest.param([field("metadata.labels['none']")], "", id="a label that is not there is empty"),
        pytest.param([field("status.podIP")], "10.88.0.7", id="the pod's address"),
        pytest.param([field("status.hostIP")], "10.88.0.1", id="the node's address"),
        pytest.param([field("spec.nodeName")], "n1", id="the node's name"),
        pytest.param([amount("limits.cpu")], "2", id="cpu is rounded up to whole ones"),
        pytest.param([amount("limits.cpu", divisor="1m")], "1500", id="cpu in millis"),
        pytest.param([amount("limits.memory", divisor="1Mi")], "1024", id="memory in mebibytes"),
        pytest.param([amount("requests.cpu", divisor="1m")], "250", id="a request"),
        pytest.param([amount("requests.memory")], "0", id="a request that is not there is nothing"),
        pytest.param([key("configMapKeyRef", "settings", "color")], "red", id="a key of a ConfigMap"),
        pytest.param([key("secretKeyRef", "keys", "password")], "hush", id="a key of a Secret is decoded"),
    ],
)
def test_a_variable_is(variables, expected):
    assert environment(variables, container=LIMITED, metadata={"labels": {"app": "web"}})["X"] == expected


def test_a_limit_that_is_not_there_is_what_the_node_can_give():
    assert environment([amount("limits.memory", divisor="1Gi")])["X"] == "32"


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        pytest.param(key("configMapKeyRef", "none", "a"), 'configmap "none" not found', id="no such ConfigMap"),
        pytest.param(key("secretKeyRef", "none", "a"), 'secret "none" not found', id="no such Secret"),
        pytest.param(
            key("configMapKeyRef", "settings", "size"),
            "couldn't find key size in ConfigMap default/settings",
            id="no such key",
        ),
        pytest.param(field("spec.color"), "unsupported fieldPath: spec.color", id="no such field"),
    ],
)
def test_what_is_missing_is_named(variable, message):
    with pytest.raises(ConfigMissingError) as caught:
        environment([variable])
    assert str(caught.value) == message


@pytest.mark.parametrize("entry", ["configMapKeyRef", "secretKeyRef"])
def test_what_is_optional_and_missing_is_left_out(entry):
    assert "X" not in environment([key(entry, "none", "a", optional=True)])


def test_a_value_that_is_an_object_is_a_bad_spec():
    with pytest.raises(PodSpecError):
        environment([{"name": "X", "value": {"a": 1}}])


def test_whole_objects_come_with_a_prefix_without_keys_that_are_no_names_and_lose_to_env():
    imported = [{"prefix": "CFG_", "configMapRef": {"name": "settings"}}, {"secretRef": {"name": "keys"}}]
    found = environment([{"name": "password", "value": "mine"}], imported)
    assert (found["CFG_color"], found["password"]) == ("red", "mine")
    assert not any(" " in name for name in found)


def test_every_container_has_the_address_of_the_api_server():
    found = environment()
    assert (found["KUBERNETES_SERVICE_HOST"], found["KUBERNETES_SERVICE_PORT"]) == ("10.88.0.1", "443")


def test_references_name_every_object_that_must_be_read():
    container = {
        "name": "c",
        "env": [key("configMapKeyRef", "a", "k"), key("secretKeyRef", "b", "k")],
        "envFrom": [{"secretRef": {"name": "d"}}],
    }
    assert references(read_pod(build_pod(container)).containers[0]) == {
        ("configmap", "a"),
        ("secret", "b"),
        ("secret", "d"),
    }


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({"command": ["a", "$(X)"], "args": ["b"]}, ("a", "1", "b"), id="command and arguments, expanded"),
        pytest.param({"command": ["a"], "args": []}, ("a",), id="a command alone replaces the image's arguments too"),
        pytest.param({"command": [], "args": ["b"]}, ("entry", "b"), id="arguments alone go to the image's entrypoint"),
        pytest.param({"command": [], "args": []}, ("entry", "cmd"), id="neither is what the image runs"),
        pytest.param(
            {"command": ["sleep", 5], "args": [True]}, ("sleep", "5", "true"), id="numbers and booleans of YAML"
        ),
    ],
)
def test_a_command_line_is(container, expected):
    spec = read_pod(build_pod({"name": "c", **container})).containers[0]
    assert build_argv(spec, {"X": "1"}, entrypoint=("entry",), image_command=("cmd",)) == expected
