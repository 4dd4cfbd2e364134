"""Schemas for kubeconform, made of OpenAPI documents and CRDs."""

from pathlib import Path

import jsonschema
import pytest
import yaml

import security_schemas as schemas

ROOT = Path(__file__).parents[3]
DOCUMENT = {
    "definitions": {
        "v1.Pod": {
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "spec": {"$ref": "#/definitions/v1.PodSpec"},
            },
            "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}],
        },
        "v1.PodSpec": {
            "type": "object",
            "required": ["containers"],
            "properties": {
                "containers": {"type": "array", "items": {"type": "object"}},
                "port": {"$ref": "#/definitions/IntOrString"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        "IntOrString": {"type": "string", "format": "int-or-string"},
        "Other": {"type": "object"},
    }
}


@pytest.fixture
def pod():
    ((name, schema),) = schemas.kinds_of_openapi(DOCUMENT)
    assert name == "v1_v1_pod.json"
    return schema


def is_valid(schema, **spec):
    return jsonschema.Draft7Validator(schema).is_valid({"apiVersion": "v1", "kind": "Pod", "spec": spec})


@pytest.mark.rule("SE:C4")
@pytest.mark.parametrize(
    ("spec", "valid"),
    [
        pytest.param({"containers": [{"name": "a"}]}, True, id="an object without properties takes any field"),
        pytest.param({"containers": [], "port": 80}, True, id="a number where text is possible"),
        pytest.param({"containers": [], "port": "http"}, True, id="text where a number is possible"),
        pytest.param({"containers": [], "labels": {"any": "name"}}, True, id="a map"),
        pytest.param({"containers": [], "labels": {"any": 1}}, False, id="a map with a wrong value"),
        pytest.param({"containers": [], "conainers": []}, False, id="a misspelled field"),
        pytest.param({}, False, id="a missing field"),
        pytest.param({"containers": "a"}, False, id="a wrong type"),
    ],
)
def test_unknown_fields_and_wrong_types_are_errors(pod, spec, valid):
    assert is_valid(pod, **spec) == valid


def test_only_definitions_that_a_kind_refers_to_are_written(pod):
    assert set(pod["definitions"]) == {"v1.Pod", "v1.PodSpec", "IntOrString"}


def test_the_document_is_not_changed():
    list(schemas.kinds_of_openapi(DOCUMENT))
    assert "additionalProperties" not in DOCUMENT["definitions"]["v1.PodSpec"]


@pytest.mark.parametrize("name", ["raycluster", "trainingjob"])
def test_a_sample_is_valid_for_its_crd_and_a_misspelled_field_is_not(name):
    (crd,) = (yaml.load(path.read_text(), yaml.CSafeLoader) for path in (ROOT / "crds").glob(f"*{name}s.yaml"))
    schema = dict(schemas.kinds_of_crd(crd))[f"{crd['spec']['group']}_v1_{name}.json"]
    documents = yaml.safe_load_all((ROOT / "samples" / f"{name}.yaml").read_text())
    sample = next(each for each in documents if each["kind"].lower() == name)
    validator = jsonschema.Draft7Validator(schema)
    assert validator.is_valid(sample)
    sample["spec"]["misspeled"] = 1
    assert not validator.is_valid(sample)
