"""Leader election: decisions about a Lease, and the manifests to write.

Takes the observed Lease and how long it was unchanged by the local clock; returns a verdict (acquire, renew, wait) and
the manifests to write. Other replicas' clocks are not trusted: times inside a Lease are compared only for equality.
Used by the loop in `kube/leader_election`; rules D10, RM:I10, RC §6.3.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from raytide.api.meta import LEASES, Key, Manifest

RELEASED_S: Final = 1
"""leaseDurationSeconds of a released lease, as client-go writes it: zero is invalid."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Durations of leader election; a candidate waits for the duration written in the Lease."""

    duration_s: int = 30
    """Seconds without a renewal after which another replica may acquire the lease."""
    renew_deadline_s: float = 20.0
    """Seconds after its last renewal during which a holder may write; the rest of the duration is a safety margin."""
    retry_s: float = 4.0
    """Seconds between renewals; a candidate reads the lease twice as often."""

    @property
    def call_timeout_s(self) -> float:
        """Time-out of one call, in seconds: several attempts must fit into the deadline."""
        return min(5.0, self.renew_deadline_s / 4)

    @property
    def attempt_interval_s(self) -> float:
        """Seconds between a candidate's reads of the lease."""
        return self.retry_s / 2


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a Lease; equal records mean that it was not renewed in between."""

    holder: str = ""
    duration_s: float = 0.0
    renewed: str = ""
    acquired: str = ""
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """A record, when it was last read, and for how long it was observed unchanged, both by the local clock."""

    record: Record
    at: float
    unchanged_s: float = 0.0


class LeaseDecision(Enum):
    """What to do about a lease."""

    ACQUIRE = "acquire"
    RENEW = "renew"
    WAIT = "wait"


def record_of(lease: Manifest, *, default_s: float) -> Record:
    """The record of a Lease; `default_s` is used where it contains no duration."""
    spec = lease.get("spec") or {}
    return Record(
        holder=spec.get("holderIdentity") or "",
        duration_s=spec.get("leaseDurationSeconds") or default_s,
        renewed=spec.get("renewTime") or "",
        acquired=spec.get("acquireTime") or "",
        transitions=spec.get("leaseTransitions") or 0,
    )


def observe(previous: LeaseObservation | None, record: Record, now: float, *, longest_gap_s: float) -> LeaseObservation:
    """Record one more read of the lease.

    Time between two reads counts as `longest_gap_s` at most: while the API server was unavailable or this process was
    stopped, the holder may have been unable to renew, or may have renewed unobserved.
    """
    if previous is None or previous.record != record:
        return LeaseObservation(record, now)
    return LeaseObservation(record, now, previous.unchanged_s + min(now - previous.at, longest_gap_s))


def decide(observation: LeaseObservation | None, identity: str) -> LeaseDecision:
    """The verdict for `identity`; None stands for a Lease that does not exist."""
    if observation is None or not observation.record.holder:
        return LeaseDecision.ACQUIRE
    if observation.record.holder == identity:
        return LeaseDecision.RENEW
    return LeaseDecision.ACQUIRE if observation.unchanged_s >= observation.record.duration_s else LeaseDecision.WAIT


def build_held(lease: Manifest | None, key: Key, identity: str, duration_s: int, moment: str) -> Manifest:
    """The Lease with `identity` as its holder, otherwise unchanged; its resourceVersion is the write's precondition."""
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
    """The Lease without a holder."""
    spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": RELEASED_S}
    return {**lease, "spec": {**spec, "renewTime": moment, "acquireTime": moment}}
