"""Tenants of fair sharing: one tenant, and the namespace label that names one.

Values only; manager/tenant_settings.py parses the list of tenants. Amounts are whole numbers as in capacity accounting:
`cpu` in millicores, everything else in its own unit. The planner decides with them (fairshare/algorithm/tenants.py;
TJ:7.13, D25).
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from raytide.api.pod_requirements import Amounts

TENANT_LABEL: Final = "raytide.io/tenant"
"""Label of a namespace; its value is the name of the tenant to which the jobs in it belong."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Jobs that share one quota; words and meaning are those of Kueue."""

    name: str
    nominal_quota: Amounts = field(default_factory=dict)
    """What it can use before it borrows, and reclaim from tenants that borrow."""
    borrowing_limit: Amounts = field(default_factory=dict)
    """What it may use at most above its nominal quota; a missing name is no limit."""
    weight: Fraction = Fraction(1)
    """Above zero: a tenant of weight 2 may borrow twice as much as one of weight 1."""
