"""The permissions of the chart and of the operator, as triples of group, resource and verb."""

from collections.abc import Iterable

from raytide.api.rbac_rules import Permission, Triple


def triples_of(permissions: Iterable[Permission]) -> frozenset[Triple]:
    """All triples of these rows."""
    return frozenset(triple for permission in permissions for triple in permission.triples)
