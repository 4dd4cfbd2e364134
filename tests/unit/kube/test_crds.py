"""CustomResourceDefinitions are applied one after the other, and served before the next one."""

import json
from pathlib import Path

import msgspec.yaml
import pytest
from click.testing import CliRunner

import raytide.cli
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import RAYCLUSTERS, TRAININGJOBS
from raytide.kube.client import Client
from raytide.kube.crds import ESTABLISHED_WITHIN_S, apply_crds, crd_texts, load_crds
from raytide.runtime.clock import Clock
from unit.kube.scripted import ScriptedTransport, answer, status_error

pytestmark = pytest.mark.rule("FD:UX-9")

CRDS = load_crds()
FILES = Path(__file__).parents[3] / "crds"
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NEW = answer({"metadata": {}})
ESTABLISHED = answer({"status": {"conditions": [{"type": "Established", "status": "True"}]}})
NOT_YET = answer({"status": {"conditions": [{"type": "Established", "status": "False"}]}})


async def applied(transport, crds=None):
    client = Client(transport, clock=Clock())
    return [name async for name in apply_crds(client, CRDS if crds is None else crds, clock=Clock())]


def test_the_package_has_the_files_of_the_repository():
    assert list(crd_texts()) == [path.read_text() for path in sorted(FILES.iterdir())]
    names = {f"{kind.plural}.{kind.group}" for kind in (RAYCLUSTERS, TRAININGJOBS)}
    assert {crd["metadata"]["name"] for crd in CRDS} == names


async def test_each_is_a_server_side_apply_that_takes_fields_over():
    transport = ScriptedTransport()
    transport.answers.extend([ESTABLISHED, ESTABLISHED])
    names = await applied(transport)
    assert names == [crd["metadata"]["name"] for crd in CRDS]
    assert [(call.method, call.path) for call in transport.calls] == [("PATCH", f"{PATH}/{name}") for name in names]
    for call, crd in zip(transport.calls, CRDS, strict=True):
        assert call.headers["content-type"] == "application/apply-patch+yaml"
        assert (call.query["fieldManager"], call.query["force"]) == ("raytide-crds", "true")
        assert call.json == crd


@pytest.mark.looptime
async def test_it_waits_until_the_kind_is_served():
    transport = ScriptedTransport()
    transport.answers.extend([NEW, NOT_YET, ESTABLISHED])
    assert await applied(transport, CRDS[:1]) == [CRDS[0]["metadata"]["name"]]
    assert [call.method for call in transport.calls] == ["PATCH", "GET", "GET"]


@pytest.mark.looptime
async def test_one_that_is_not_established_within_a_minute_is_an_error_that_names_it():
    transport = ScriptedTransport()
    transport.answers.append(NEW)
    transport.answers.extend([NOT_YET] * int(ESTABLISHED_WITHIN_S * 2))
    with pytest.raises(ApiUnavailableError, match=r"trainingjobs\.paddlepaddle\.org is not established after 60 s"):
        await applied(transport, CRDS[:1])


async def test_a_rejected_one_ends_it_before_the_next():
    transport = ScriptedTransport()
    transport.answers.append(status_error(403, "Forbidden", "customresourcedefinitions is forbidden"))
    with pytest.raises(ApiStatusError, match="is forbidden"):
        await applied(transport)
    assert len(transport.calls) == 1


# --- the command -----------------------------------------------------------------------------------------------------


def call(*words):
    return CliRunner().invoke(raytide.cli.main, ["crds", *words])


def test_print_gives_what_kubectl_applies():
    result = call("print")
    assert result.exit_code == 0
    assert [msgspec.yaml.decode(text) for text in result.output.split("---\n")] == list(CRDS)


@pytest.fixture
def transport(monkeypatch):
    """What the command connects to."""
    scripted = ScriptedTransport()

    async def connect(kubeconfig, *, context):
        assert (str(kubeconfig), context) == ("k", "c")
        return scripted

    monkeypatch.setattr("raytide.kube.kubeconfig.connect", connect)
    return scripted


def test_apply_reports_each(transport):
    transport.answers.extend([ESTABLISHED, ESTABLISHED])
    result = call("apply", "--kubeconfig", "k", "--context", "c")
    assert result.exit_code == 0, result.output
    names = [crd["metadata"]["name"] for crd in CRDS]
    assert result.output.splitlines() == [
        f"customresourcedefinition.apiextensions.k8s.io/{name} applied" for name in names
    ]


def test_apply_as_json_has_the_names_and_no_error(transport):
    transport.answers.extend([ESTABLISHED, ESTABLISHED])
    result = call("apply", "--kubeconfig", "k", "--context", "c", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"applied": [crd["metadata"]["name"] for crd in CRDS], "error": ""}


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", msgspec.yaml.decode)])
def test_an_error_has_the_definitions_applied_before_it(transport, output, read):
    transport.answers.extend([ESTABLISHED, status_error(403, "Forbidden", "customresourcedefinitions is forbidden")])
    result = call("apply", "--kubeconfig", "k", "--context", "c", "-o", output)
    assert result.exit_code == 1
    found = read(result.stdout)
    assert found["applied"] == [CRDS[0]["metadata"]["name"]]
    assert "customresourcedefinitions is forbidden" in found["error"]
    assert result.stderr == f"Error: {found['error']}\n"


def test_apply_without_a_cluster_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    result = call("apply")
    assert result.exit_code == 1
    assert result.output.startswith("Error: no cluster to talk to")
    assert len(result.output.splitlines()) == 1
