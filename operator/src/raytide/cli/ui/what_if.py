"""Effect of a YAML on the next sharing passes: what its jobs would get, and what other jobs would give.

The same computation as `raytide plan --submit`, as JSON for the page. A YAML with aliases is rejected before it is loaded: a few
hundred bytes of them describe gigabytes. Pure. Called by app.py.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import yaml

from raytide.api.config import SharingConfig
from raytide.cli.plan.explain import differences, sizes_after
from raytide.cli.plan.from_files import MAX_DEPTH, InputError, PlanInputs, read_submitted
from raytide.cli.plan.simulate import PlanResult, plan_next_pass
from raytide.explain.encode import API_VERSION
from raytide.fairshare.algorithm.model import Participant, ParticipantId, Resize, Waiting

KIND: Final = "Effect"
NAME: Final = "the YAML"
MAX_CHANGES: Final = 500
"""Jobs whose size changes that the answer has; the rest is counted."""


def effect_of(
    text: str, snapshot: PlanInputs, namespace: str, *, config: SharingConfig, now: datetime
) -> dict[str, Any]:
    """The effect as a JSON object; raises InputError for a YAML without new, valid TrainingJobs."""
    _reject_aliases(text)
    existing = {job.key for job in snapshot.jobs}
    jobs = read_submitted([(NAME, text)], namespace, there=existing, now=now)
    return as_json(plan_next_pass(snapshot, jobs, config=config, now=now), snapshot.notes)


def as_json(result: PlanResult, notes: tuple[str, ...]) -> dict[str, Any]:
    """Submitted jobs first, then the jobs that would be larger or smaller than without them."""
    before = result.before or (result.snapshot, result.allocation)
    size_without, size_with = sizes_after(*before), sizes_after(result.snapshot, result.allocation)
    jobs = {job.id: job for job in result.snapshot.participants}
    reasons: dict[ParticipantId, Resize | Waiting] = {each.id: each for each in result.allocation.waiting}
    reasons.update((each.id, each) for each in result.allocation.resizes)
    submitted = [_change(jobs[id_], 0, size_with[id_], reasons) for id_ in result.submitted if id_ in jobs]
    others = [
        _change(jobs[id_], size, size_with[id_], reasons)
        for id_, size in sorted(size_without.items())
        if size_with[id_] != size
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "submitted": submitted[:MAX_CHANGES],
        "others": others[:MAX_CHANGES],
        "omitted": max(0, len(submitted) - MAX_CHANGES) + max(0, len(others) - MAX_CHANGES),
        "sentences": list(
            differences(before, (result.snapshot, result.allocation), result.submitted)[: 2 * MAX_CHANGES]
        ),
        "notes": list(notes),
    }


def _change(
    job: Participant, size_without: int, size_with: int, reasons: Mapping[ParticipantId, Resize | Waiting]
) -> dict[str, Any]:
    """Sizes after the pass without and with the submitted jobs, and the reason that the pass records."""
    why = reasons.get(job.id)
    return {
        "kind": job.id.kind,
        "namespace": job.id.namespace,
        "name": job.id.name,
        "current": job.current,
        "minimum": job.floor,
        "maximum": job.ceiling,
        "without": size_without,
        "with": size_with,
        "reason": why.reason if why else "",
        "message": (why.full_message or why.message) if why else "",
    }


def _reject_aliases(text: str) -> None:
    """Raise InputError for an alias: a few of them expand to memory out of proportion.

    Returns early for text that is no YAML or nested too deep, which `read_submitted` reports with line and column.
    """
    depth = 0
    try:
        for event in yaml.parse(text, yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1 if event.start_mark else 0
                raise InputError(f"{NAME}: line {line}: aliases (*{event.anchor}) are not supported: write the value")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:  # libyaml takes time in proportion to the square of the depth
                return
    except yaml.YAMLError:
        return
