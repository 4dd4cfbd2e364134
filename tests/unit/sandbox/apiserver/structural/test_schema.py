"""A schema that a real API server would not accept is rejected when it is compiled."""

import re
from types import SimpleNamespace

import pytest

from raytide_sandbox.apiserver.schema import SchemaError, compile_schema
from raytide_sandbox.apiserver.structural.cel import fields_read
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
    "properties together with additionalProperties": (
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


READ_AT_THE_ROOT = {
    "a field": (("has(self.spec)", ""), {"spec"}),
    "a field of the old object": (("oldSelf.hasValue() || oldSelf.status.a == 1", ""), {"status"}),
    "a field in the message": (("has(self.spec)", "self.status.a"), {"spec", "status"}),
    "the object": (("size(self) > 1", ""), None),
    "a field by its index": (("self['spec'].a", ""), None),
    "a macro on the object": (("self.exists(key, key == 'a')", ""), None),
    "the old value": (("oldSelf.value().spec.a == 1", ""), None),
    "a name that only begins like it": (("selfish.spec", ""), set()),
}


@pytest.mark.parametrize(("texts", "fields"), READ_AT_THE_ROOT.values(), ids=READ_AT_THE_ROOT)
def test_what_a_rule_can_read_of_an_object(texts, fields):
    """Its results are cached for what it reads; when that is not certain, for everything."""
    text, message_text = texts
    rule = SimpleNamespace(text=text, message_text=message_text)
    assert fields_read([rule]) == fields


def test_rules_of_the_whole_object_see_its_name_but_no_other_metadata():
    """As in Kubernetes: metadata.name and metadata.generateName only."""
    rules = [{"rule": "self.metadata.name == 'a' && !has(self.metadata.labels) && self.spec.n == 1", "message": "no"}]
    spec = {"type": "object", "properties": {"n": {"type": "integer"}}}
    structural = compile_schema({**schema(spec=spec, metadata={"type": "object"}), "x-kubernetes-validations": rules})

    def judge(name, n):
        metadata = {"name": name, "labels": {"a": "b"}, "resourceVersion": "5"}
        obj = {"metadata": metadata, "spec": {"n": n}, "status": {}}
        return [fault.message for fault in structural.violations(obj, None, is_status=False)]

    assert judge("a", 1) == []
    assert "no" in judge("b", 1)[0]
    assert "no" in judge("a", 2)[0]
