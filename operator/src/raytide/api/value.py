"""How is something that a user wrote read into a frozen value?

`Value` is the base of all models of custom resources, `ObjectMeta` the part of `metadata` that they share. JSON comes in,
frozen values come out; extra keys and nulls are ignored, a wrong type raises pydantic's ValidationError (D13), whose
complaints `faults_of` puts into words of YAML. Used by api/raycluster.py, api/trainingjob.py and the controllers; never by
the wires, which do without pydantic.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from raytide.api.faults import MOST_FAULTS, Violation
from raytide.api.meta import Key


class Value(BaseModel):
    """Base of all models of what users write: frozen, extra keys and nulls ignored, JSON names in camelCase (D13)."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, given: Any) -> Any:
        return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given


class ObjectMeta(Value):
    """The part of `metadata` that we read."""

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


_WORDS: Final = {
    "missing": "is missing",
    "string_type": "must be a text",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "mapping_type": "must be an object",
    "model_type": "must be an object",
}
"""pydantic's complaints in words of YAML."""


def faults_of(error: ValidationError) -> tuple[Violation, ...]:
    """One fault per field that has the wrong type, is too long or is missing; the first of very many."""
    return tuple(
        Violation("type", _path_of(one["loc"]), _WORDS.get(one["type"]) or _too_long(one) or _lower(one["msg"]))
        for one in islice(error.errors(include_url=False, include_input=False), MOST_FAULTS)
    )


def _too_long(one: ErrorDetails) -> str:
    if one["type"] != "too_long":
        return ""
    most = one["ctx"]["max_length"]
    return f"has more than {most} entries; nothing is done about this object: keep at most {most}"


def _path_of(location: tuple[int | str, ...]) -> str:
    """`spec.workerGroupSpecs[0].replicas`, as kubectl would spell it."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
