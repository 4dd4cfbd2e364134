"""How `ray start` is called: parameters (RC §3.5) and the container's command (RC §3.4)."""

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.api.config import PodConfig
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template
from raytide.raycluster.manifests.ray_start import port_param, start_command
from support.builders import group, parsed, template
from support.deadlines import PATIENCE

CONFIG = PodConfig()
ESCAPED = r'"{\"Custom\": 4}"'


def ray_of(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["containers"][0]


def flags_of(ray: dict[str, Any]) -> dict[str, str]:
    command = next(e["value"] for e in ray["env"] if e["name"] == "KUBERAY_GEN_RAY_START_CMD")
    flags = (word[2:].partition("=") for word in command.split(" ") if word.startswith("--"))
    return {name: value for name, _, value in flags}


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.52.0", **fields}]}}


def limited(limits: dict[str, Any] | None = None, requests: dict[str, Any] | None = None) -> dict[str, Any]:
    return container(resources={"limits": limits or {}, "requests": requests or {}})


def worker_flags(params: dict[str, str] | None = None, **fields: Any) -> dict[str, str]:
    cluster = parsed(group(rayStartParams=params or {}, **fields))
    return flags_of(ray_of(build_worker_template(cluster, cluster.spec.worker_group_specs[0], CONFIG)))


def head_flags(params: dict[str, str] | None = None, **fields: Any) -> dict[str, str]:
    head = {"rayStartParams": params or {}, "template": template("ray-head"), **fields}
    return flags_of(ray_of(build_head_pod(parsed(headGroupSpec=head), CONFIG, "demo-head-aaaaa")))


def head_container(params: dict[str, str] | None = None, config: PodConfig = CONFIG, **fields: Any) -> dict[str, Any]:
    head = {"rayStartParams": params or {}, "template": container(**fields)}
    return ray_of(build_head_pod(parsed(headGroupSpec=head), config, "demo-head-aaaaa"))


# --- what the group says -------------------------------------------------------------------------------------------
@pytest.mark.rule("RC:RSP-1", "RC:POD-2", "RC:POD-18")
@pytest.mark.parametrize(
    ("resources", "flags"),
    [
        pytest.param({"CPU": "4"}, {"num-cpus": "4"}, id="cpu in any case"),
        pytest.param({"cpu": "1500m"}, {"num-cpus": "2"}, id="cpus are rounded up"),
        pytest.param({"memory": "2Gi"}, {"memory": "2147483648"}, id="memory in bytes"),
        pytest.param({"GPU": "2"}, {"num-gpus": "2"}, id="a GPU by Ray's name, in any case"),
        pytest.param({"nvidia.com/gpu": "2"}, {"num-gpus": "2"}, id="a GPU by the vendor's name"),
        pytest.param({"nvidia.com/mig-1g.5gb": "3"}, {"num-gpus": "3"}, id="slices of a GPU"),
        pytest.param({"b": "1", "a": "500m"}, {"resources": """'{"a":0.5,"b":1}'"""}, id="others as JSON numbers"),
        pytest.param({"CPU": "0", "GPU": "0"}, {"num-cpus": "0", "num-gpus": "0"}, id="a zero, which keeps tasks away"),
        pytest.param({"cpu": "many", "a": "1"}, {"resources": """'{"a":1}'"""}, id="an unreadable amount is left out"),
    ],
)
def test_group_resources_become_parameters(resources, flags):
    plain = {"template": container()}
    found = worker_flags(resources=resources, **plain)
    assert {name: found.get(name) for name in flags} == flags
    assert found.keys() - flags.keys() == worker_flags(**plain).keys()


@pytest.mark.rule("RC:RSP-1")
def test_group_resources_win_over_the_container_and_over_the_resources_parameter():
    found = worker_flags({"resources": "'{\"old\":1}'"}, resources={"cpu": "7", "new": "1"}, template=template(cpu="2"))
    assert (found["num-cpus"], found["resources"]) == ("7", """'{"new":1}'""")


@pytest.mark.rule("RC:RSP-2")
def test_group_labels_become_one_sorted_parameter():
    cluster = parsed(headGroupSpec={"template": template(), "labels": {"zone": "b", "a/b": "c"}})
    head = build_head_pod(cluster, CONFIG, "demo-head-aaaaa")
    assert " --labels=a/b=c,zone=b " in ray_of(head)["args"][0]
    assert head["metadata"]["labels"]["zone"] == "b"


# --- what every Ray node needs ---------------------------------------------------------------------------------------
@pytest.mark.rule("RC:RSP-3", "RC:RSP-5", "RC:RSP-6", "RC:RSP-7", "RC:RSP-15", "RC:POD-18")
def test_a_worker_without_parameters_gets_exactly_these():
    assert worker_flags(template=container()) == {
        "address": "demo-head-svc.default.svc.cluster.local:6379",
        "metrics-export-port": "8080",
        "block": "",
        "dashboard-agent-listen-port": "52365",
    }


@pytest.mark.rule("RC:RSP-4", "RC:RSP-5", "RC:RSP-6", "RC:RSP-7", "RC:RSP-15", "RC:POD-4")
def test_a_head_without_parameters_gets_exactly_these():
    assert head_flags(template=container()) == {
        "head": "",
        "dashboard-host": "0.0.0.0",
        "metrics-export-port": "8080",
        "block": "",
        "dashboard-agent-listen-port": "52365",
    }


@pytest.mark.rule("RC:RSP-3")
def test_workers_connect_to_the_gcs_at_the_heads_port():
    cluster = parsed(headGroupSpec={"rayStartParams": {"port": "6380"}, "template": template()})
    worker = build_worker_template(cluster, cluster.spec.worker_group_specs[0], PodConfig(cluster_domain="corp"))
    assert flags_of(ray_of(worker))["address"] == "demo-head-svc.default.svc.corp:6380"


@pytest.mark.rule("FD:RC3-1", "RC:RSP-4")
def test_where_pods_have_ipv6_the_dashboard_listens_on_it():
    assert flags_of(head_container(config=PodConfig(is_ipv6=True)))["dashboard-host"] == "::"
    assert (
        flags_of(head_container({"dashboard-host": "fd00::5"}, PodConfig(is_ipv6=True)))["dashboard-host"] == "fd00::5"
    )


@pytest.mark.rule("RC:RSP-3", "RC:RSP-4", "RC:RSP-5", "RC:RSP-7", "RC:RSP-10", "RC:RSP-11", "RC:RSP-12")
def test_what_the_user_set_stays():
    own = {
        "address": "elsewhere:1",
        "metrics-export-port": "9090",
        "dashboard-agent-listen-port": "1234",
        "num-cpus": "0",
        "memory": "5",
        "num-gpus": "0",
    }
    limits = {"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert worker_flags(own, template=limited(limits)) == {**own, "block": ""}
    assert head_flags({"dashboard-host": "127.0.0.1"})["dashboard-host"] == "127.0.0.1"


@pytest.mark.rule("RC:RSP-6")
def test_ray_always_stays_in_the_foreground():
    assert worker_flags({"block": "false"})["block"] == ""


# --- parameters from container resources ----------------------------------------------------------------------------
@pytest.mark.rule("RC:RSP-10", "RC:RSP-11", "RC:RSP-12", "RC:RSP-13")
@pytest.mark.parametrize(
    ("limits", "requests", "flags"),
    [
        pytest.param({"cpu": "2500m"}, {"cpu": "1"}, {"num-cpus": "3"}, id="the CPU limit, rounded up"),
        pytest.param({}, {"cpu": "100m"}, {"num-cpus": "1"}, id="without a limit the CPU request"),
        pytest.param({"cpu": "0"}, {"cpu": "3"}, {"num-cpus": "3"}, id="a limit of zero is none"),
        pytest.param({"cpu": 2}, {}, {"num-cpus": "2"}, id="an amount written as a number"),
        pytest.param({"cpu": "0"}, {"cpu": "0"}, {}, id="zero CPUs are not passed"),
        pytest.param({"memory": "1.5Gi"}, {}, {"memory": "1610612736"}, id="the memory limit in bytes"),
        pytest.param({}, {"memory": "1Gi"}, {}, id="never the memory request"),
        pytest.param({"nvidia.com/gpu": "2"}, {}, {"num-gpus": "2"}, id="GPUs"),
        pytest.param({"nvidia.com/mig-2g.10gb": "2"}, {}, {"num-gpus": "2"}, id="slices of a GPU"),
        pytest.param({"b.com/gpu": "2", "a.com/gpu": "1"}, {}, {"num-gpus": "1"}, id="the first GPU by name"),
        pytest.param({"a.com/gpu": "0", "b.com/gpu": "2"}, {}, {"num-gpus": "2"}, id="the first that is not zero"),
        pytest.param({}, {"nvidia.com/gpu": "2"}, {}, id="GPUs are read from limits only"),
        pytest.param({"google.com/tpu": "4"}, {}, {"resources": """'{"TPU":4}'"""}, id="TPUs"),
        pytest.param(
            {"google.com/tpu": "4", "aws.amazon.com/neuroncore": "2"},
            {},
            {"resources": """'{"neuron_cores":2}'"""},
            id="one kind of accelerator at most, the first by name",
        ),
        pytest.param(
            {"cpu": "lots", "memory": "1Gi"}, {}, {"memory": "1073741824"}, id="an unreadable amount is left out"
        ),
    ],
)
def test_container_resources_become_parameters(limits, requests, flags):
    found = worker_flags(template=limited(limits, requests))
    assert {name: value for name, value in found.items() if name not in worker_flags(template=container())} == flags


@pytest.mark.rule("RC:RSP-13", "RC:RSP-14")
@pytest.mark.parametrize(
    ("param", "resources"),
    [
        pytest.param("""'{"b":2,"a":1.50}'""", """'{"TPU":4,"a":1.5,"b":2}'""", id="added to the user's, sorted"),
        pytest.param("""{"a":1e3}""", """'{"TPU":4,"a":1000}'""", id="quotes are not needed"),
        pytest.param("""`{"a":1}`""", """'{"TPU":4,"a":1}'""", id="backticks are read, too"),
        pytest.param("""'{"TPU":8}'""", """'{"TPU":8}'""", id="the user's own TPUs win"),
        pytest.param("""'{"neuron_cores":1}'""", """'{"neuron_cores":1}'""", id="so do the user's Neuron cores"),
    ],
)
def test_accelerators_join_the_resources_parameter(param, resources):
    limits = {"google.com/tpu": "4", "nvidia.com/gpu": "1"}
    found = worker_flags({"resources": param.replace(" ", "")}, template=limited(limits))
    assert (found["resources"], found["num-gpus"]) == (resources, "1")


@pytest.mark.rule("RC:RSP-14")
@pytest.mark.parametrize(
    "param",
    [
        ESCAPED.replace(" ", ""),
        "",
        "[]",
        "7",
        '{"a":"1"}',
        '{"a":true}',
        '{"a":NaN}',
        '{"a":1e999999999}',
        "[" * 100_000,
    ],
    ids=["escaped", "empty", "list", "number", "text", "boolean", "not-a-number", "beyond-a-double", "deep"],
)
def test_a_resources_parameter_that_cannot_be_read_is_passed_on_and_stops_detection(param):
    limits = {"google.com/tpu": "4", "nvidia.com/gpu": "1", "cpu": "1"}
    found = worker_flags({"resources": param}, template=limited(limits))
    assert found["resources"] == param
    assert "num-gpus" not in found
    assert found["num-cpus"] == "1"


# --- the command -----------------------------------------------------------------------------------------------------
@pytest.mark.rule("RC:CMD-2")
@pytest.mark.parametrize(
    ("params", "command"),
    [
        pytest.param({}, "ray start ", id="nothing"),
        pytest.param({"b": "2", "a": "1"}, "ray start  --a=1  --b=2 ", id="sorted, a space on both sides"),
        pytest.param({"block": "true"}, "ray start  --block ", id="true is a flag"),
        pytest.param({"block": "TRUE"}, "ray start  --block ", id="in any case"),
        pytest.param({"block": "False"}, "ray start ", id="false is nothing"),
        pytest.param({"log-color": "false"}, "ray start  --log-color=false ", id="log-color keeps its value"),
        pytest.param(
            {"include-dashboard": "True"}, "ray start  --include-dashboard=True ", id="include-dashboard, too"
        ),
        pytest.param(
            {"include-log-monitor": "true"}, "ray start  --include-log-monitor=true ", id="and the log monitor"
        ),
        pytest.param({"port": ""}, "ray start  --port= ", id="empty text is a value"),
    ],
)
def test_parameters_become_flags(params, command):
    assert start_command(params, is_head=False) == command


@pytest.mark.rule("RC:CMD-2")
def test_the_start_command_of_a_head_has_the_head_flag():
    assert start_command({"block": "true"}, is_head=True) == "ray start --head  --block "


ULIMIT = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; "


@pytest.mark.rule("RC:CMD-1", "RC:CMD-4", "RC:CMD-5")
@pytest.mark.parametrize(
    ("own", "before"),
    [
        pytest.param({}, "", id="no command"),
        pytest.param({"command": [], "args": None}, "", id="an empty command"),
        pytest.param({"command": ["echo", "a"]}, " echo  a  && ", id="a command runs first"),
        pytest.param({"args": ["echo b"]}, " echo b  && ", id="args alone, too"),
        pytest.param({"command": ["echo a;"], "args": ["echo b"]}, " echo a;  echo b  && ", id="command, then args"),
    ],
)
def test_ray_starts_after_the_command_of_the_user(own, before):
    ray = head_container(**own)
    start = next(e["value"] for e in ray["env"] if e["name"] == "KUBERAY_GEN_RAY_START_CMD")
    assert start.startswith("ray start --head ")
    assert ray["command"] == ["/bin/bash", "-c", "--"]
    assert ray["args"] == [f"{before}{ULIMIT}{start}"]


@pytest.mark.rule("RC:CMD-4")
def test_a_login_shell_on_request():
    assert head_container(config=PodConfig(is_login_shell=True))["command"] == ["/bin/bash", "-cl", "--"]


@pytest.mark.rule("RC:CMD-3", "RC:CMD-5")
def test_a_command_that_starts_ray_itself_stays():
    ray = head_container(command=["bash", "-c"], args=["prepare; ray start --head"])
    assert (ray["command"], ray["args"]) == (["bash", "-c"], ["prepare; ray start --head"])
    assert any(e["name"] == "KUBERAY_GEN_RAY_START_CMD" for e in ray["env"])


@pytest.mark.rule("RC:CMD-3")
@pytest.mark.parametrize("yes", ["true", "True", "TRUE"])
def test_a_template_can_keep_its_command(yes):
    head = container(command=["sleep"], args=["1d"])
    head["metadata"] = {"annotations": {"ray.io/overwrite-container-cmd": yes}}
    ray = ray_of(build_head_pod(parsed(headGroupSpec={"template": head}), CONFIG, "demo-head-aaaaa"))
    assert (ray["command"], ray["args"]) == (["sleep"], ["1d"])


# --- the variable with the start command ---------------------------------------------------------------------------------
SPELLINGS = {
    "unquoted": "$KUBERAY_GEN_RAY_START_CMD",
    "after another command": "echo head; $KUBERAY_GEN_RAY_START_CMD",
    "eval": 'eval "$KUBERAY_GEN_RAY_START_CMD"',
    "eval unquoted": "eval $KUBERAY_GEN_RAY_START_CMD",
    "a second shell": 'bash -c "$KUBERAY_GEN_RAY_START_CMD"',
    "expanded by the kubelet": "$(KUBERAY_GEN_RAY_START_CMD)",
}
RECORDER = """
import json, os, sys
flags = dict(word[2:].partition("=")[::2] for word in sys.argv[2:] if word.startswith("--"))
overrides = json.loads(os.environ.get("RAY_OVERRIDE_RESOURCES") or "{}")
json.dump({**json.loads(flags.get("resources") or "{}"), **overrides}, open(os.environ["FOUND"], "w"))
"""
"""The two places in which `ray start` looks for resources, as in ray/_private/utils.py and resource_and_label_spec.py."""


def ray_with_own_command(command: str, params: dict[str, str], **spec: Any) -> dict[str, Any]:
    own = container(command=["bash", "-c"], args=[command], **spec)
    own["metadata"] = {"annotations": {"ray.io/overwrite-container-cmd": "true"}}
    head = {"rayStartParams": params, "template": own}
    return ray_of(build_head_pod(parsed(headGroupSpec=head), CONFIG, "demo-head-aaaaa"))


def resources_that_ray_reads(ray: dict[str, Any], folder: Any) -> Any:
    """Run the container's command as the kubelet does, with a `ray` that writes down the resources."""
    (folder / "recorder.py").write_text(RECORDER)
    (folder / "ray").write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/recorder.py "$@"\n')
    (folder / "ray").chmod(0o755)
    env = {e["name"]: e["value"] for e in ray["env"] if "value" in e}
    words = [w.replace("$(KUBERAY_GEN_RAY_START_CMD)", env["KUBERAY_GEN_RAY_START_CMD"]) for w in ray["args"]]
    env |= {"PATH": f"{folder}:/bin:/usr/bin", "FOUND": str(folder / "found.json")}
    subprocess.run([shutil.which("bash"), "-c", *words], env=env, check=True, timeout=10 * PATIENCE)
    return json.loads((folder / "found.json").read_text())


@pytest.mark.rule("FD:RC3-6", "RC:CMD-5")
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(
    ("param", "limits", "resources"),
    [
        pytest.param("""'{"a":1,"b c":2}'""", {}, {"a": 1, "b c": 2}, id="the user's, in single quotes"),
        pytest.param(r'"{\"a\": 1, \"b\": 2}"', {}, {"a": 1, "b": 2}, id="the user's, with escaped quotes"),
        pytest.param('{"a":1, "b":2}', {}, {"a": 1, "b": 2}, id="the user's, without quotes"),
        pytest.param("""'{"it\\u0027s":1}'""", {}, {"it's": 1}, id="a name with a quote"),
        pytest.param(None, {"google.com/tpu": "4"}, {"TPU": 4}, id="TPUs of the limits"),
        pytest.param("'{\"a\":1}'", {"google.com/tpu": "4"}, {"a": 1, "TPU": 4}, id="TPUs beside the user's"),
        pytest.param("'{}'", {}, {}, id="none"),
    ],
)
def test_the_command_of_the_variable_gives_the_resources_however_a_shell_expands_it(
    spelling, param, limits, resources, tmp_path
):
    params = {} if param is None else {"resources": param}
    ray = ray_with_own_command(SPELLINGS[spelling], params, resources={"limits": limits})
    assert resources_that_ray_reads(ray, tmp_path) == resources


@pytest.mark.rule("FD:RC3-6")
@pytest.mark.parametrize(
    ("command", "param", "env"),
    [
        pytest.param("ray start --head", "'{\"a\":1}'", [], id="the command does not use it"),
        pytest.param(SPELLINGS["eval"], "$RESOURCES", [], id="the shell expands the resources"),
        pytest.param(SPELLINGS["eval"], '\'{"a":"x"}\'', [], id="the resources are no numbers"),
        pytest.param(SPELLINGS["eval"], "'{", [], id="the resources are no JSON"),
        pytest.param(
            SPELLINGS["eval"],
            "'{\"a\":1}'",
            [{"name": "RAY_OVERRIDE_RESOURCES", "value": "{}"}],
            id="the user overrides the resources",
        ),
    ],
)
def test_the_variable_keeps_the_resources_if(command, param, env):
    ray = ray_with_own_command(command, {"resources": param}, env=env)
    variables = {e["name"]: e.get("value") for e in ray["env"]}
    assert f" --resources={param} " in variables["KUBERAY_GEN_RAY_START_CMD"]
    assert [e for e in ray["env"] if e["name"] == "RAY_OVERRIDE_RESOURCES"] == env


@pytest.mark.rule("RC:PRB-4")
@pytest.mark.parametrize(
    ("params", "port"),
    [
        pytest.param({}, 8265, id="absent"),
        pytest.param({"dashboard-port": "9000"}, 9000, id="a number"),
        pytest.param({"dashboard-port": "http"}, 8265, id="no number"),
        pytest.param({"dashboard-port": ""}, 8265, id="empty"),
    ],
)
def test_a_port_parameter_that_is_no_number_counts_as_absent(params, port):
    assert port_param(params, "dashboard-port", 8265) == port


@given(
    st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "google.com/tpu", "x"]), st.text()), st.text()
)
def test_no_text_makes_construction_fail(limits, resources):
    cluster = parsed(group(rayStartParams={"resources": resources}, resources=limits, template=limited(limits)))
    assert build_worker_template(cluster, cluster.spec.worker_group_specs[0], CONFIG)["spec"]["containers"]
