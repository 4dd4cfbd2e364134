"""Validation of fields that a TrainingJob sets in two spellings with different values.

Takes the job as written and returns a violation for each field whose two spellings are present and differ, because
either could be the intended one (TJ §3 row 20). Pure. Called by validation.py only.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import GPU, INVALID_SPEC, OLD_GPU, ROLES
from raytide.api.violations import Violation

_OF_SPEC: Final = (
    ("ports_num", "portsNum"),
    ("ports_num_for_sparse", "portsNumForSparse"),
    ("fault_tolerant", "faultTolerant"),
    ("VolumeMounts", "volumeMounts"),
    ("host_network", "hostNetwork"),
)
_OF_ROLES: Final = (
    ("min-instance", "minInstance"),
    ("max-instance", "maxInstance"),
    ("nodeSelector", "node_selector"),
    ("gracePeriodSeconds", "grace_period_seconds"),
    ("preStopCmd", "pre_stop_cmd"),
    ("livenessProbe", "liveness_probe"),
    ("readinessProbe", "readiness_probe"),
)
_OF_AMOUNTS: Final = ((GPU, OLD_GPU),)


def spelling_violations(job: TrainingJob) -> Iterator[Violation]:
    """One violation per field that is present twice and differs; the path is that of the second spelling."""
    spec = _mapping(job.raw.get("spec"))
    yield from _of(spec, "spec", _OF_SPEC)
    for role in ROLES:
        written = _mapping(spec.get(role))
        yield from _of(written, f"spec.{role}", _OF_ROLES)
        resources = _mapping(written.get("resources"))
        for part in ("requests", "limits"):
            yield from _of(_mapping(resources.get(part)), f"spec.{role}.resources.{part}", _OF_AMOUNTS)


def _of(written: Mapping[str, Any], field: str, pairs: tuple[tuple[str, str], ...]) -> Iterator[Violation]:
    for one, other in pairs:
        here, there = written.get(one), written.get(other)
        if here is not None and there is not None and str(here) != str(there):
            message = f"is another spelling of {one} and differs from it; keep one of them"
            yield Violation("TJ:3-20", f"{field}.{other}", message, INVALID_SPEC)


def _mapping(written: Any) -> Mapping[str, Any]:
    return written if isinstance(written, Mapping) else {}
