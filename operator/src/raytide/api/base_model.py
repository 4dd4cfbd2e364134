"""Pydantic base of the custom resource models.

`Value` is the base of all models of custom resources, `ObjectMeta` the part of `metadata` that they share. They parse
JSON into frozen values; extra keys and nulls are ignored, a wrong type raises pydantic's ValidationError (D13), which
`faults_of` translates into violations. Used by api/raycluster.py, api/trainingjob.py and the controllers; never by the
API clients, which do not import pydantic.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from raytide.api.meta import Key
from raytide.api.violations import MAX_VIOLATIONS, Violation


class Value(BaseModel):
    """Base of all models of user-written objects: frozen, extra keys and nulls ignored, camelCase in JSON (D13)."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, given: Any) -> Any:
        return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given


class ObjectMeta(Value):
    """The fields of `metadata` that the operator reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)


_MESSAGES: Final = {
    "missing": "is missing",
    "string_type": "must be a string",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "mapping_type": "must be an object",
    "model_type": "must be an object",
}
"""Messages for pydantic's error types."""


def faults_of(error: ValidationError) -> tuple[Violation, ...]:
    """One violation per field that has the wrong type, is too long or is missing; at most `MAX_VIOLATIONS`."""
    return tuple(
        Violation("type", field_path(one["loc"]), _MESSAGES.get(one["type"]) or _too_long(one) or _lower(one["msg"]))
        for one in islice(error.errors(include_url=False, include_input=False), MAX_VIOLATIONS)
    )


def _too_long(one: ErrorDetails) -> str:
    if one["type"] != "too_long":
        return ""
    maximum = one["ctx"]["max_length"]
    return f"has more than {maximum} entries; this object is not reconciled: keep at most {maximum}"


def field_path(location: tuple[int | str, ...]) -> str:
    """A field path as kubectl writes it, such as `spec.workerGroupSpecs[0].replicas`."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
