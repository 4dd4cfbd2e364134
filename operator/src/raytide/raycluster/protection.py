"""Protections that a RayCluster asks for and that it cannot get.

Token authentication, TLS and network policies restrict access to a Ray cluster, and access means running code. The last two are not
built yet; a token needs a Secret, which the operator may have to create and only creates if it may. A pod without them would be open although its owner believes otherwise, so none is created (fail closed) unless the annotation
`raytide.io/allow-insecure` names the field and so waives it. An entry is removed when its feature is built. Pure;
called by the plan, and by unsupported.py for waived fields. Rule FD:RC-B3.
"""

from collections.abc import Iterator
from typing import Final

from raytide.api import constants
from raytide.api.config import PodConfig
from raytide.api.raycluster import RayCluster
from raytide.api.violations import Violation
from raytide.raycluster.manifests import token_auth

RULE: Final = "FD:RC-B3"
AUTH: Final = "authOptions"
TLS: Final = "tlsOptions"
NETWORK_POLICY: Final = "networkPolicy"
PROTECTIONS: Final = (AUTH, TLS, NETWORK_POLICY)
"""Values of `raytide.io/allow-insecure`: fields of `spec`."""


def missing_protection(cluster: RayCluster, config: PodConfig) -> tuple[Violation, ...]:
    """Every requested protection that is neither available nor waived; no pod may be created while there is one."""
    accepted = accepted_without(cluster)
    return tuple(violation for name, violation in _asked_for(cluster, config) if name not in accepted)


def accepted_without(cluster: RayCluster) -> frozenset[str]:
    """The fields of `spec` whose protection the cluster's annotation waives."""
    return frozenset(waived_fields(cluster)) & frozenset(PROTECTIONS)


def waived_fields(cluster: RayCluster) -> tuple[str, ...]:
    """The comma-separated words of the annotation, whether they name a protection or not."""
    written = cluster.metadata.annotations.get(constants.ALLOW_INSECURE_ANNOTATION, "")
    return tuple(word for part in written.split(",") if (word := part.strip()))


def _asked_for(cluster: RayCluster, config: PodConfig) -> Iterator[tuple[str, Violation]]:
    spec = cluster.spec
    if token_auth.is_asked_for(cluster) and not token_auth.is_available(cluster, config):
        message = (
            "requests token authentication, and the operator may not create the Secret with the token: no pod is created "
            f"without it. Create a Secret with the key {token_auth.KEY} and name it in secretName, or let the operator create "
            f"it (tokenAuth.createSecrets of the chart), or accept pods without it with the annotation "
            f"{constants.ALLOW_INSECURE_ANNOTATION}: {AUTH}"
        )
        yield AUTH, Violation(RULE, "spec.authOptions.mode", message)
    if (spec.tls_options or {}).get("enabled"):
        yield TLS, _violation(TLS, "spec.tlsOptions.enabled", "TLS between Ray's processes")
    if spec.network_policy is not None:
        yield NETWORK_POLICY, _violation(NETWORK_POLICY, "spec.networkPolicy", "NetworkPolicies")


def _violation(name: str, field: str, what: str) -> Violation:
    message = (
        f"requests {what}, which Raytide does not implement yet: no pod is created without it, running pods are "
        f"kept. Remove the field, or accept pods without it with the annotation {constants.ALLOW_INSECURE_ANNOTATION}: {name}"
    )
    return Violation(RULE, field, message)
