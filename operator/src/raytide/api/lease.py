"""Who may hold a lease, and what does a Lease look like when they do?

Takes a Lease as it was read now and then, and for how long it was seen unchanged by our own clock; gives a verdict
(acquire, renew, wait) and the manifests to write. Other people's clocks are never believed: the times inside a Lease are
compared for being the same, and nothing else. Used by the loop in `kube/lease`; rules D10, RM:I10, RC §6.3.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from raytide.api.meta import LEASES, Key, Manifest

RELEASED_S: Final = 1
"""leaseDurationSeconds of a lease that nobody holds, as client-go writes it: zero is invalid."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How long a lease lasts; whoever waits for it waits as long as the Lease itself says."""

    duration_s: int = 30
    """After so long without a renewal others may take the lease."""
    renew_deadline_s: float = 20.0
    """So long after its last renewal a holder may still write; the rest of the duration is its safety margin."""
    retry_s: float = 4.0
    """From one renewal to the next; who waits for the lease looks twice as often."""

    @property
    def call_timeout_s(self) -> float:
        """Several attempts must fit into the deadline."""
        return min(5.0, self.renew_deadline_s / 4)

    @property
    def look_s(self) -> float:
        """From one look at somebody else's lease to the next."""
        return self.retry_s / 2


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says; equal records mean that nobody renewed it in between."""

    holder: str = ""
    duration_s: float = 0.0
    renewed: str = ""
    acquired: str = ""
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class Sighting:
    """A record, when it was last read, and for how long it was seen unchanged, both by our own clock."""

    record: Record
    at: float
    unchanged_s: float = 0.0


class Verdict(Enum):
    """What to do about a lease."""

    ACQUIRE = "acquire"
    RENEW = "renew"
    WAIT = "wait"


def record_of(lease: Manifest, *, default_s: float) -> Record:
    """What the Lease says; `default_s` where it does not say how long it lasts."""
    spec = lease.get("spec") or {}
    return Record(
        holder=spec.get("holderIdentity") or "",
        duration_s=spec.get("leaseDurationSeconds") or default_s,
        renewed=spec.get("renewTime") or "",
        acquired=spec.get("acquireTime") or "",
        transitions=spec.get("leaseTransitions") or 0,
    )


def sight(previous: Sighting | None, record: Record, now: float, *, longest_gap_s: float) -> Sighting:
    """One more look at the lease.

    Time in which we did not look counts as `longest_gap_s` at most: while the API was away, or we were stopped, the
    holder could not renew either, or did and we missed it, and deserves a chance.
    """
    if previous is None or previous.record != record:
        return Sighting(record, now)
    return Sighting(record, now, previous.unchanged_s + min(now - previous.at, longest_gap_s))


def decide(sighting: Sighting | None, identity: str) -> Verdict:
    """Who is next? None is a Lease that does not exist."""
    if sighting is None or not sighting.record.holder:
        return Verdict.ACQUIRE
    if sighting.record.holder == identity:
        return Verdict.RENEW
    return Verdict.ACQUIRE if sighting.unchanged_s >= sighting.record.duration_s else Verdict.WAIT


def build_held(lease: Manifest | None, key: Key, identity: str, duration_s: int, moment: str) -> Manifest:
    """The Lease with us as its holder, otherwise as it was; its resourceVersion guards the write."""
    base = lease or {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"namespace": key.namespace, "name": key.name},
    }
    spec = dict(base.get("spec") or {})
    if spec.get("holderIdentity") != identity:
        spec["acquireTime"] = moment
        spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + 1 if lease else 0
    spec |= {"holderIdentity": identity, "leaseDurationSeconds": duration_s, "renewTime": moment}
    return {**base, "spec": spec}


def build_released(lease: Manifest, moment: str) -> Manifest:
    """The Lease with nobody as its holder."""
    spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": RELEASED_S}
    return {**lease, "spec": {**spec, "renewTime": moment, "acquireTime": moment}}
