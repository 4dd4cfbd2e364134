"""A schema that a real API server would not accept is rejected when it is compiled."""

import re

import pytest

from raytide_sandbox.apiserver.schema import SchemaError, compile_schema
from raytide_sandbox.apiserver.structural.model import violation


def schema(**properties):
    return {"type": "object", "properties": properties}


def ruled(**rule):
    return schema(a={"type": "string", "x-kubernetes-validations": [rule]})


REJECTED = {
    "a property without a type": (schema(a={}), "properties[a].type: Required value"),
    "a type that does not exist": (schema(a={"type": "text"}), 'properties[a].type: Unsupported value: "text"'),
    "a list without items": (schema(a={"type": "array"}), "properties[a].items: Required value"),
    "a list map without keys": (
        schema(a={"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
        "x-kubernetes-list-map-keys: Required value",
    ),
    "properties beside additionalProperties": (
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}
        | {"properties": {"a": {"type": "string"}}},
        "additionalProperties: Forbidden",
    ),
    "a pattern that is none": (schema(a={"type": "string", "pattern": "("}), "pattern: not a regular expression"),
    "a schema that is no object": (schema(a=[]), "properties[a]: must be an object"),
    "a rule that does not parse": (ruled(rule="self +"), "compilation failed"),
    "a rule without text": (ruled(message="x"), "rule: Required value"),
    "a rule with a function not implemented here": (ruled(rule="isQuantity(self)"), "not implemented"),
    "a rule with a name that does not exist": (ruled(rule="slef == 'x'"), "undeclared reference to 'slef'"),
    "a rule with a reason that does not exist": (ruled(rule="true", reason="Because"), "reason: Unsupported value"),
    "optionalOldSelf without oldSelf": (ruled(rule="true", optionalOldSelf=True), "optionalOldSelf: Invalid value"),
    "a message that does not parse": (ruled(rule="true", messageExpression="'"), "messageExpression"),
}


@pytest.mark.parametrize(("text", "message"), REJECTED.values(), ids=REJECTED)
def test_a_bad_schema_is_rejected(text, message):
    with pytest.raises(SchemaError, match=re.escape(message)):
        compile_schema(text)


def test_a_rule_may_use_the_extended_string_functions():
    structural = compile_schema(ruled(rule="self.lowerAscii() == 'abc' && self.split('b').size() == 2"))
    assert structural.violations({"a": "ABC"}) != []
    assert structural.violations({"a": "abc"}) == []


def test_a_message_that_breaks_falls_back_to_the_static_one():
    structural = compile_schema(ruled(rule="self == 'x'", message="must be x", messageExpression="self[9]"))
    (fault,) = structural.violations({"a": "y"})
    assert fault.message == 'Invalid value: "y": must be x'


def test_judging_changes_nothing():
    structural = compile_schema(schema(a={"type": "integer", "default": 1}))
    obj = {"a": "x", "b": 1}
    structural.violations(obj, {"a": 2})
    assert obj == {"a": "x", "b": 1}


def test_defaults_are_not_shared_between_objects():
    structural = compile_schema(schema(a={"type": "object", "default": {}, "properties": {"b": {"type": "integer"}}}))
    one, two = {}, {}
    structural.default(one)
    structural.default(two)
    one["a"]["b"] = 1
    assert two == {"a": {}}


def test_a_violation_reads_as_status_details_do():
    fault = violation("spec.a", "FieldValueNotSupported", 'supported values: "x"', "y")
    assert (fault.kind, str(fault)) == ("Unsupported value", 'spec.a: Unsupported value: "y": supported values: "x"')


def test_an_answer_is_not_remembered_for_another_value_or_another_past():
    structural = compile_schema(ruled(rule="self == oldSelf", message="immutable"))
    assert structural.violations({"a": "x"}) == []
    assert structural.violations({"a": "x"}, {"a": "x"}) == []
    for _ in range(2):
        assert len(structural.violations({"a": "x"}, {"a": "y"})) == 1
        assert len(structural.violations({"a": "y"}, {"a": "x"})) == 1
        assert structural.violations({"a": "x"}, {}) == []
