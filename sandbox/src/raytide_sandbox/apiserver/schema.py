"""Structural schemas of custom resources: defaulting, pruning, validation.

`compile_schema` compiles the `openAPIV3Schema` of one version to a `Structural`, which defaults, prunes and validates
objects like kube-apiserver: same order, same wording, same ratcheting (unchanged invalid values do not block an
update). The reference is the control plane in tests/controlplane (Kubernetes 1.35), not the version that the emulator
reports (routes.py). Pure: no clock, no I/O; one `Structural` serves any number of objects. Called on every write of a
custom resource, and when a definition is created.
"""

from typing import Any

from raytide_sandbox.apiserver.structural.cel_validation import rule_violations
from raytide_sandbox.apiserver.structural.model import Node, SchemaError, Violation, build_node, violation
from raytide_sandbox.apiserver.structural.pruning_defaulting import drop_nulls, fill_defaults, prune_unknown
from raytide_sandbox.apiserver.structural.schema_validation import MISSING, duplicates, faults

__all__ = ["SchemaError", "Structural", "Violation", "compile_schema"]

_BLOCKS_RULES = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)
_RULES_SKIPPED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


class Structural:
    """A compiled schema.

    - `default` changes the object in place: drops nulls, fills in defaults.
    - `prune` changes it in place too and returns the paths of unknown fields (`spec.foo`), for Strict and Warn.
    - `violations` changes nothing; with `old` it validates an update and ignores errors of unchanged values.
    """

    def __init__(self, root: Node) -> None:
        self._root = root

    def default(self, obj: dict[str, Any]) -> None:
        """Drop nulls of fields that are not nullable, then fill in defaults."""
        drop_nulls(obj, self._root)
        fill_defaults(obj, self._root)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Remove unknown fields; returns their paths, sorted."""
        return prune_unknown(obj, self._root)

    def violations(
        self, obj: dict[str, Any], old: dict[str, Any] | None = None, *, is_status: bool = False
    ) -> list[Violation]:
        """All violations of a create, or of an update of `old`; `is_status` for writes of the status subresource."""
        found = self._value_faults(obj, old, is_status=is_status)
        repeated = duplicates(self._root, "", obj)
        if repeated and (old is None or not duplicates(self._root, "", old)):
            found += repeated
        if any(fault.reason in _BLOCKS_RULES for fault in found):
            return [*found, violation("", "FieldValueInvalid", _RULES_SKIPPED, None)]
        return found + rule_violations(self._root, obj, old)

    def _value_faults(self, obj: dict[str, Any], old: dict[str, Any] | None, *, is_status: bool) -> list[Violation]:
        before = MISSING if old is None else old
        if not is_status:
            return faults(self._root, "", obj, before)
        node = self._root.at("status")
        if node is None or "status" not in obj:
            return []
        return faults(node, "status", obj["status"], (old or {}).get("status", MISSING))


def compile_schema(openapi_v3_schema: dict[str, Any]) -> Structural:
    """Compile `spec.versions[].schema.openAPIV3Schema`; raises `SchemaError` with the path of the error."""
    return Structural(build_node(openapi_v3_schema, "openAPIV3Schema"))
