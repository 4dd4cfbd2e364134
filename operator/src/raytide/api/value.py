"""How is something that a user wrote read into a frozen value?

`Value` is the base of all models of custom resources, `ObjectMeta` the part of `metadata` that they share. JSON comes in,
frozen values come out; extra keys and nulls are ignored, a wrong type raises pydantic's ValidationError (D13). Used by
api/raycluster.py and whoever reads another kind; never by the wires, which do without pydantic.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

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
