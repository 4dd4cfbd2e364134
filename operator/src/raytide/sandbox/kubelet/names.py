"""Which addresses does each name of the cluster stand for?

Takes Endpoints as raw objects; returns full names to pod addresses: `svc.ns.svc.cluster.local` and, for pods with a
hostname behind a headless service, `host.svc.ns.svc.cluster.local`. There is no service proxy in the sandbox, so the
name of a ClusterIP service leads straight to its ready pods, just as a headless one does; publishNotReadyAddresses is
already part of Endpoints. Pure; kubelet.py feeds the answer to the runtime after every change.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

DOMAIN: Final = "svc.cluster.local"
API_SERVER: Final = f"kubernetes.default.{DOMAIN}"


def build_names(endpoints: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Every name that has at least one address."""
    names: dict[str, list[str]] = {}
    for subject in endpoints:
        metadata = subject["metadata"]
        service = f"{metadata['name']}.{metadata['namespace']}.{DOMAIN}"
        for address in _addresses(subject):
            names.setdefault(service, []).append(address["ip"])
            if address.get("hostname"):
                names.setdefault(f"{address['hostname']}.{service}", []).append(address["ip"])
    return {name: tuple(dict.fromkeys(found)) for name, found in names.items()}


def _addresses(endpoints: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    for subset in endpoints.get("subsets") or ():
        yield from (address for address in subset.get("addresses") or () if address.get("ip"))
