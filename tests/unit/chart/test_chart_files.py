"""Checks of chart and image that need neither helm nor a container engine."""

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from raytide.api.config import DEFAULT_FEATURE_GATES, OTHER_FEATURE_GATES
from raytide.manager.settings import UNSUPPORTED_GATES

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "helm/raytide/values.schema.json").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def load_generator():
    spec = importlib.util.spec_from_file_location("chart_generator", ROOT / "tools/generators/chart.py")
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    return generator


chart = load_generator()


# --- what is generated ---------------------------------------------------------------------------------------------------


def test_everything_written_is_as_its_generator_writes_it():
    assert [str(path) for path, text in chart.build_all().items() if path.read_text() != text] == []


def test_the_charts_versions_are_the_packages():
    assert chart.odd_versions() == []


def test_a_different_version_is_detected(tmp_path, monkeypatch):
    (tmp_path / "Chart.yaml").write_text("version: 0.0.1\nappVersion: 9.9.9\n")
    monkeypatch.setattr(chart, "CHART", tmp_path)
    assert [line.split(": ")[1].split()[0] for line in chart.odd_versions()] == ["version", "appVersion"]


def test_a_changed_table_of_permissions_is_detected(monkeypatch, capsys):
    monkeypatch.setattr(chart, "PERMISSIONS", chart.PERMISSIONS[1:])
    monkeypatch.setattr("sys.argv", ["chart.py", "--check"])
    with pytest.raises(SystemExit, match=r"SECURITY\.md is not current"):
        chart.main()


@pytest.mark.parametrize("name", ["ray.io_rayclusters.yaml", "paddlepaddle.org_trainingjobs.yaml"])
def test_the_chart_contains_the_generated_crds(name):
    assert (ROOT / "helm/raytide/crds" / name).read_text() == (ROOT / "crds" / name).read_text()


# --- the schema ----------------------------------------------------------------------------------------------------------


def open_objects(node, path=""):
    """Objects in the schema that accept any name, except maps of a described type."""
    if isinstance(node, dict):
        if "properties" in node and node.get("type") == "object" and node.get("additionalProperties") is not False:
            yield path
        for name, child in node.items():
            yield from open_objects(child, f"{path}/{name}")


def test_no_object_of_the_values_schema_accepts_unknown_names():
    assert list(open_objects(SCHEMA)) == []


def test_every_value_is_described():
    described = {path.split(".")[0] for path, _ in chart.described(SCHEMA)}
    assert set(SCHEMA["properties"]) == described


def test_every_value_is_in_one_of_the_two_tables_of_the_readme():
    """Those of this chart have a default; those that exist only because KubeRay's chart has them do not."""
    ours, kuberays = chart.build_values_table(), chart.build_kuberay_table()
    readme = (ROOT / "helm/raytide/README.md").read_text()
    assert ours in readme
    assert kuberays in readme
    for path, node in chart.described(SCHEMA):
        row, is_of_kuberay = f"\n| `{path}` |", chart.is_of_kuberay(node)
        assert path == "global" or (row in ours, row in kuberays) == (not is_of_kuberay, is_of_kuberay), path


def leaves(values, schema, path=""):
    for name, value in values.items():
        node = schema["properties"][name]
        if "properties" in node and "description" not in node:
            yield from leaves(value, node, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_every_default_is_in_the_table():
    defaults = yaml.safe_load((ROOT / "helm/raytide/values.yaml").read_text())
    table = chart.build_values_table()
    assert [path for path in leaves(defaults, SCHEMA) if f"| `{path}` |" not in table] == []


def test_its_gates_are_the_operators():
    gates = SCHEMA["properties"]["featureGates"]["properties"]
    listed = SCHEMA["properties"]["featureGates"]["items"]["properties"]["name"]["enum"]
    assert set(listed) == set(gates)
    assert set(gates) == DEFAULT_FEATURE_GATES | OTHER_FEATURE_GATES
    assert {name for name, rule in gates.items() if rule == {"const": False}} == UNSUPPORTED_GATES


# --- the image -----------------------------------------------------------------------------------------------------------


def instructions():
    """Instructions of the Dockerfile as (word, rest), with continued lines joined."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def last_stage():
    every = instructions()
    return every[max(i for i, (word, _) in enumerate(every) if word == "FROM") :]


def test_the_base_image_is_pinned_by_digest():
    pinned, build = (rest for word, rest in instructions() if word == "ARG")
    assert re.fullmatch(r"PYTHON_IMAGE=\S+@sha256:[0-9a-f]{64}", pinned)
    assert build == "BUILD_IMAGE=${PYTHON_IMAGE}"
    assert [rest for word, rest in instructions() if word == "FROM"] == ["${BUILD_IMAGE} AS build", "${PYTHON_IMAGE}"]


@pytest.mark.rule("SE:C18")
def test_it_runs_as_the_user_of_rays_images():
    users = [rest for word, rest in last_stage() if word == "USER"]
    assert users == ["1000:100"]
    after = [word for word, _ in last_stage()][[word for word, _ in last_stage()].index("USER") :]
    assert not {"RUN", "COPY", "ADD"} & set(after)


def test_it_starts_raytide_without_a_shell():
    started = {word: json.loads(rest) for word, rest in last_stage() if word in ("ENTRYPOINT", "CMD")}
    assert started == {"ENTRYPOINT": ["raytide"], "CMD": ["operator"]}


@pytest.mark.rule("SE:C13")
def test_everything_installed_from_the_network_is_pinned_with_hashes():
    commands = [c.strip() for word, rest in instructions() if word == "RUN" for c in rest.split("&&")]
    installs = [shlex.split(command) for command in commands if " pip " in command and " install " in command]
    assert len(installs) == 3
    for arguments in installs:
        assert {"--require-hashes", "-r"} <= set(arguments) or {"--no-index", "--no-deps"} <= set(arguments)
    wheels = [shlex.split(command) for command in commands if " pip " in command and " wheel " in command]
    assert all("--no-build-isolation" in arguments for arguments in wheels)
    assert not [word for word, _ in instructions() if word == "ADD"]


def test_bytecode_is_written_when_it_is_built_and_never_after():
    env = " ".join(rest for word, rest in last_stage() if word == "ENV")
    assert "PYTHONDONTWRITEBYTECODE=1" in env
    assert "compileall" in DOCKERFILE


def test_the_build_sees_only_what_it_copies():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)
