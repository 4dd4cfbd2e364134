"""DNS names of the cluster and their addresses.

Takes Endpoints as raw objects; returns pod addresses by full name: `svc.ns.svc.cluster.local` and, for pods with a
hostname behind a headless service, `host.svc.ns.svc.cluster.local`. The sandbox has no virtual service IPs, so the name
of a ClusterIP service resolves to its ready pods, as that of a headless one does; publishNotReadyAddresses is already
applied in Endpoints. Pure; kube_proxy.py passes the result to the runtime after every change.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

DOMAIN: Final = "svc.cluster.local"
API_SERVER: Final = f"kubernetes.default.{DOMAIN}"


def build_names(endpoints: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Addresses by name, for every name that has at least one."""
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
