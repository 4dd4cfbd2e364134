"""The JSON of an explanation keeps to its schema, and answers that were recorded stay valid.

`python tests/unit/explain/test_encode.py NAME` records the answer of a case of that name under the current apiVersion; recorded
answers are never changed, because programs were written for them.
"""

import json
import sys
from pathlib import Path

import jsonschema
import pytest

from raytide.explain import encode
from raytide.explain.explain import explain
from support.explained import NOON, NOTHING_MISSING, RAYCLUSTERS, TRAININGJOBS, hostile

HERE = Path(__file__).parent
RECORDED = sorted((HERE / "recorded").glob("*.json"))
ALL = {
    **{f"RayCluster {words}": make for words, make in RAYCLUSTERS.items()},
    **{f"TrainingJob {words}": make for words, make in TRAININGJOBS.items()},
}


def validator() -> jsonschema.Draft202012Validator:
    """Of the schema that is part of the package."""
    schema = encode.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def strict(schema: object) -> object:
    """The schema, in which no object has other properties than those that it describes."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    return (
        {**closed, "additionalProperties": False}
        if "properties" in schema and schema.get("type") == "object"
        else closed
    )


def paths(value: object, at: str = "") -> set[str]:
    """The paths of all fields, without the indices of lists."""
    if isinstance(value, dict):
        return {path for key, inner in value.items() for path in {f"{at}.{key}", *paths(inner, f"{at}.{key}")}}
    if isinstance(value, list):
        return {path for inner in value for path in paths(inner, f"{at}[]")}
    return set()


@pytest.mark.parametrize("make", [pytest.param(make, id=words) for words, make in ALL.items()])
def test_every_answer_is_valid(make):
    validator().validate(encode.as_json(make().explained()))


@pytest.mark.parametrize("make", [*NOTHING_MISSING.values(), hostile])
def test_other_answers_are_valid(make):
    validator().validate(encode.as_json(explain(make(), NOON)))


def test_the_schema_describes_every_field():
    closed = jsonschema.Draft202012Validator(strict(encode.schema()))
    for make in ALL.values():
        closed.validate(encode.as_json(make().explained()))
    closed.validate(encode.as_json(explain(hostile(), NOON)))


def test_a_program_finds_the_version():
    answer = encode.as_json(explain(NOTHING_MISSING["all workers are ready"](), NOON))
    assert (answer["apiVersion"], answer["kind"], answer["exitCode"]) == ("raytide.io/v1alpha1", "Explanation", 0)


@pytest.mark.parametrize("file", [pytest.param(file, id=file.stem) for file in RECORDED])
def test_a_recorded_answer_stays_valid(file):
    validator().validate(json.loads(file.read_text()))


def test_no_field_of_a_recorded_answer_is_gone():
    current = {path for make in ALL.values() for path in paths(encode.as_json(make().explained()))}
    current |= paths(encode.as_json(explain(hostile(), NOON)))
    recorded = {path for file in RECORDED for path in paths(json.loads(file.read_text()))}
    assert RECORDED
    assert recorded - current == set()


def test_reasons_and_verdicts_of_recorded_answers_are_the_same_today():
    for file in RECORDED:
        old, new = json.loads(file.read_text()), encode.as_json(ALL[file.stem.replace("-", " ")]().explained())
        for key in ("verdict", "exitCode"):
            assert new[key] == old[key], file.stem
        old_causes = [(each["stage"], each["group"], each["reason"], each["permanent"]) for each in old["blockers"]]
        assert [
            (each["stage"], each["group"], each["reason"], each["permanent"]) for each in new["blockers"]
        ] == old_causes


if __name__ == "__main__":
    answer = encode.as_json(ALL[sys.argv[1]]().explained())
    (HERE / "recorded" / f"{sys.argv[1].replace(' ', '-')}.json").write_text(json.dumps(answer, indent=2) + "\n")
