"""The setting that lists the tenants of fair sharing: the text of `--tenants`, in YAML or JSON with Kueue's words.

Returns checked values; a fault is a ValueError that names the field (TJ:7.13, D25).
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Final

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from raytide.api.base_model import field_path
from raytide.api.pod_requirements import CPU, Amounts
from raytide.api.quantity import Quantity
from raytide.api.tenants import Tenant


def _amount(value: Any) -> Quantity:
    quantity = Quantity.parse(value)
    if quantity.nanos < 0:
        raise ValueError("must not be negative")
    return quantity


def _weight(value: Any) -> Fraction:
    weight = Fraction(Quantity.parse(value).nanos, 10**9)
    if not Fraction(1, 1000) <= weight <= 1000:
        raise ValueError("must be between 0.001 and 1000")
    return weight


_Resource = Annotated[str, Field(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")]
_Quantities = dict[_Resource, Annotated[Quantity, BeforeValidator(_amount)]]


class _Entry(BaseModel):
    """One item of the list."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, arbitrary_types_allowed=True)

    name: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")
    nominal_quota: _Quantities = Field(default_factory=dict)
    borrowing_limit: _Quantities = Field(default_factory=dict)
    weight: Annotated[Fraction, BeforeValidator(_weight)] = Fraction(1)


def _without_duplicates(entries: list[_Entry]) -> list[_Entry]:
    seen = set[str]()
    for number, entry in enumerate(entries):
        if entry.name in seen:
            raise ValueError(f"[{number}].name: {entry.name!r} is listed twice")
        seen.add(entry.name)
    return entries


_ENTRIES: Final = TypeAdapter(Annotated[list[_Entry], AfterValidator(_without_duplicates)])


def parse_tenants(text: str) -> tuple[Tenant, ...]:
    """Parse the list; an empty text is an empty list. Raises ValueError with the first fault and its field."""
    try:
        written = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"cannot be parsed as YAML: {' '.join(str(error).split())}") from error
    try:
        entries = _ENTRIES.validate_python([] if written is None else written)
    except ValidationError as error:
        raise ValueError(_first_fault(error)) from error
    return tuple(
        Tenant(entry.name, _amounts(entry.nominal_quota), _amounts(entry.borrowing_limit), entry.weight)
        for entry in entries
    )


def _amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    return {
        name: quantity.ceil_to_millis() if name == CPU else quantity.ceil_to_int()
        for name, quantity in quantities.items()
    }


_FAULTS: Final = {
    "missing": "is required",
    "extra_forbidden": "is none of name, nominalQuota, borrowingLimit and weight",
    "dict_type": "must be an object of resource names and quantities",
}
"""Kind of a fault -> what is wrong, where pydantic's message names no fix."""


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "list_type":
        return "must be a list of tenants, each with a name"
    parts = tuple(part for part in first["loc"] if part != "[key]")
    path = field_path(parts)
    if first["type"] == "string_pattern_mismatch":
        return f"{path}: is not a valid {'label value' if parts[-1] == 'name' else 'resource name'}"
    what = _FAULTS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    return f"{path}: {what}" if path else what
