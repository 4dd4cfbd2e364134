"""Kubernetes quantities: parsing, exact arithmetic and canonical form.

Parses quantities such as `1500m` or `512Mi` and returns exact integers and the canonical spelling. All arithmetic uses
whole billionths (the finest step of Kubernetes), never floats, so that a thousand pods of `100m` are exactly `100`.
Invalid text raises `QuantityError`, which quotes it. Used by status sums (RC:K-5), by `rayStartParams` (RC:RSP-1,
RC:RSP-10), by pod requirements and by the sandbox's scheduler.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

MAX_INT32: Final = 2147483647
"""The largest count in Kubernetes, and KubeRay's value for "no limit"."""

_NANOS_PER_UNIT: Final = 10**9
_MAX_BINARY_NANOS: Final = (2**63 - 1) * _NANOS_PER_UNIT
_MAX_EXPONENT: Final = 100
_MAX_TEXT_LENGTH: Final = 256

_DECIMAL_EXPONENT_OF: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENT_OF: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX_OF: Final = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENT_OF.items()}
_BINARY_SUFFIX_OF: Final = {exponent: suffix for suffix, exponent in _BINARY_EXPONENT_OF.items()}

_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?"
)


class QuantityError(ValueError):
    """Text that is not a Kubernetes quantity; the message quotes it."""

    def __init__(self, text: object) -> None:
        super().__init__(f"{text!r} is not a quantity (expected a number with an optional suffix, such as 500m or 2Gi)")
        self.text = text


class Format(Enum):
    """The suffix family in which a quantity is written."""

    DECIMAL = "decimal"
    """`n u m k M G T P E`"""
    BINARY = "binary"
    """`Ki Mi Gi Ti Pi Ei`"""
    EXPONENT = "exponent"
    """`e-3 e3 e6`"""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount in billionths; `format` affects only its text, not comparisons."""

    nanos: int = 0
    format: Format = field(default=Format.DECIMAL, compare=False)

    @classmethod
    def parse(cls, text: str | float) -> "Quantity":
        """Parse a quantity from text or a JSON number; amounts finer than a billionth are rounded away from zero.

        Raises:
            QuantityError: the text is not a quantity, or its length or exponent is too large.
        """
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise QuantityError(text)
        return _parse(text if isinstance(text, str) else repr(text))

    def __add__(self, other: "Quantity") -> "Quantity":
        """The exact sum, written in the format of the first addend that is not zero (RC:K-5)."""
        return Quantity(self.nanos + other.nanos, other.format if self.is_zero else self.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        """The exact difference, written in the format that a sum would have."""
        return self + Quantity(-other.nanos, other.format)

    def __mul__(self, times: int) -> "Quantity":
        """The exact product, such as the total request of `times` pods."""
        return Quantity(self.nanos * times, self.format)

    @property
    def is_zero(self) -> bool:
        """Whether the amount is zero."""
        return self.nanos == 0

    def __str__(self) -> str:
        """The canonical form: no fraction, no trailing zeros, the largest suffix that keeps it exact."""
        if self.is_zero:
            return "0"
        sign, nanos = ("-", -self.nanos) if self.nanos < 0 else ("", self.nanos)
        if self.format is Format.BINARY and nanos >= 1024 * _NANOS_PER_UNIT and nanos % _NANOS_PER_UNIT == 0:
            return sign + _canonical_binary(nanos // _NANOS_PER_UNIT)
        return sign + _canonical_decimal(nanos, has_exponent=self.format is Format.EXPONENT)

    def ceil_to_int(self) -> int:
        """The amount in whole units, rounded up: bytes of memory, number of CPUs or GPUs."""
        return -(-self.nanos // _NANOS_PER_UNIT)

    def ceil_to_millis(self) -> int:
        """The amount in thousandths, rounded up."""
        return -(-self.nanos // (_NANOS_PER_UNIT // 1000))


ZERO: Final = Quantity()


def total(quantities: Iterable[Quantity]) -> Quantity:
    """The exact sum; zero without quantities."""
    return sum(quantities, start=ZERO)


def to_millis(text: str | float) -> int:
    """A quantity in thousandths, rounded up; raises QuantityError."""
    return Quantity.parse(text).ceil_to_millis()


def to_bytes(text: str | float) -> int:
    """A quantity in whole units, rounded up; raises QuantityError."""
    return Quantity.parse(text).ceil_to_int()


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _TEXT.fullmatch(text) if len(text) <= _MAX_TEXT_LENGTH else None
    if match is None or not (match["whole"] or match["fraction"]):
        raise QuantityError(text)
    fraction = match["fraction"] or ""
    digits = int(match["whole"] + fraction)
    suffix = match["suffix"] or ""
    if suffix in _BINARY_EXPONENT_OF:
        numerator, power, format_ = digits << _BINARY_EXPONENT_OF[suffix], -len(fraction), Format.BINARY
    else:
        exponent = _DECIMAL_EXPONENT_OF[suffix] if match["exponent"] is None else int(match["exponent"])
        if abs(exponent) > _MAX_EXPONENT:
            raise QuantityError(text)
        numerator, power = digits, exponent - len(fraction)
        format_ = Format.DECIMAL if match["exponent"] is None else Format.EXPONENT
    nanos = _scaled(numerator, power + 9)
    if format_ is Format.BINARY:
        # Kubernetes caps binary amounts at 2^63 - 1, and reads fractions of one unit as decimal.
        nanos = min(nanos, _MAX_BINARY_NANOS)
        format_ = Format.DECIMAL if 0 < nanos < _NANOS_PER_UNIT else Format.BINARY
    return Quantity(-nanos if match["sign"] == "-" else nanos, format_)


def _scaled(number: int, power: int) -> int:
    """`number * 10**power`, rounded up."""
    factor: int = 10 ** abs(power)
    return number * factor if power >= 0 else -(-number // factor)


def _canonical_binary(units: int) -> str:
    exponent = 0
    while units % 1024 == 0 and exponent < max(_BINARY_SUFFIX_OF):
        units, exponent = units // 1024, exponent + 10
    return f"{units}{_BINARY_SUFFIX_OF.get(exponent, '')}"


def _canonical_decimal(nanos: int, *, has_exponent: bool) -> str:
    mantissa, exponent = nanos, -9
    while mantissa % 1000 == 0 and exponent < max(_DECIMAL_SUFFIX_OF):
        mantissa, exponent = mantissa // 1000, exponent + 3
    if has_exponent:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIX_OF[exponent]}"
