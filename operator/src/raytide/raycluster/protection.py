"""Which protection does a RayCluster ask for that is not built yet?

Authentication by token, TLS and network policies keep others out of a Ray cluster, where anybody who gets in runs code. A pod
made without them would be open although its owner believes otherwise, so none is made (fail closed) unless the annotation
`raytide.io/allow-insecure` names the field and so accepts it. An entry goes when its feature comes. Pure; called by the
plan, and by unsupported.py for what was accepted. Rule FD:RC-B3.
"""

from collections.abc import Iterator
from typing import Final

from raytide.api import names
from raytide.api.faults import Violation
from raytide.api.raycluster import RayCluster

RULE: Final = "FD:RC-B3"
AUTH: Final = "authOptions"
TLS: Final = "tlsOptions"
NETWORK_POLICY: Final = "networkPolicy"
PROTECTIONS: Final = (AUTH, TLS, NETWORK_POLICY)
"""What `raytide.io/allow-insecure` may name: fields of `spec`."""


def missing_protection(cluster: RayCluster) -> tuple[Violation, ...]:
    """Every protection that is asked for, cannot be given and was not waived; no pod may be made while there is one."""
    accepted = accepted_without(cluster)
    return tuple(fault for name, fault in _asked_for(cluster) if name not in accepted)


def accepted_without(cluster: RayCluster) -> frozenset[str]:
    """The fields of `spec` without whose protection the cluster may run, because its annotation says so."""
    return frozenset(waived_fields(cluster)) & frozenset(PROTECTIONS)


def waived_fields(cluster: RayCluster) -> tuple[str, ...]:
    """What stands between the commas of the annotation, whether it is a protection or not."""
    written = cluster.metadata.annotations.get(names.ALLOW_INSECURE_ANNOTATION, "")
    return tuple(word for part in written.split(",") if (word := part.strip()))


def _asked_for(cluster: RayCluster) -> Iterator[tuple[str, Violation]]:
    spec = cluster.spec
    if (spec.auth_options or {}).get("mode") == "token":
        yield AUTH, _fault(AUTH, "spec.authOptions.mode", "token authentication")
    if (spec.tls_options or {}).get("enabled"):
        yield TLS, _fault(TLS, "spec.tlsOptions.enabled", "TLS between Ray's processes")
    if spec.network_policy is not None:
        yield NETWORK_POLICY, _fault(NETWORK_POLICY, "spec.networkPolicy", "NetworkPolicies")


def _fault(name: str, field: str, what: str) -> Violation:
    message = (
        f"asks for {what}, which this operator cannot set up yet: no pod is created without it, and pods that run are left "
        f"alone. Remove the field, or accept pods without it by the annotation {names.ALLOW_INSECURE_ANNOTATION}: {name}"
    )
    return Violation(RULE, field, message)
