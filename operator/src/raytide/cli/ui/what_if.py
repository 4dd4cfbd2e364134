"""Effect of a YAML: what its TrainingJobs and RayClusters would get, and what other jobs would give in the next sharing passes.

The same computation as `raytide plan --submit`, as JSON for the page. A YAML with aliases is rejected before it is loaded: a few
hundred bytes of them describe gigabytes. Pure. Called by app.py.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import yaml

from raytide.api.config import SharingConfig
from raytide.cli.plan.from_files import MAX_DEPTH, Found, InputError, found_in, read_submitted
from raytide.cli.plan.render import effect_sentences
from raytide.explain.encode import API_VERSION
from raytide.fairshare.algorithm.model import Participant, ParticipantId, Resize, Waiting
from raytide.simulator.inputs import PlanInputs
from raytide.simulator.passes import sizes_after
from raytide.simulator.raycluster_outcome import RayClusterOutcome
from raytide.simulator.simulate import PlanResult, plan_next_pass

KIND: Final = "Effect"
NAME: Final = "the YAML"
MAX_CHANGES: Final = 500
"""Jobs whose size changes that the answer has; the rest is counted."""


def parse(text: str) -> tuple[Found, ...]:
    """The objects of the YAML to submit; raises InputError for a YAML without TrainingJobs and RayClusters."""
    _reject_aliases(text)
    return found_in([(NAME, text)])


def effect_of(
    found: tuple[Found, ...], snapshot: PlanInputs, namespace: str, *, config: SharingConfig, now: datetime
) -> dict[str, Any]:
    """The effect as a JSON object; raises InputError for objects that are invalid or exist."""
    submission = read_submitted(found, snapshot, namespace, now=now)
    return as_json(plan_next_pass(snapshot, submission, config=config, now=now), snapshot.notes)


def as_json(result: PlanResult, notes: tuple[str, ...]) -> dict[str, Any]:
    """Submitted objects first, then the jobs that would be larger or smaller than without them."""
    before = result.before or (result.snapshot, result.allocation)
    size_without, size_with = sizes_after(*before), sizes_after(result.snapshot, result.allocation)
    jobs = {job.id: job for job in result.snapshot.participants}
    reasons: dict[ParticipantId, Resize | Waiting] = {each.id: each for each in result.allocation.waiting}
    reasons.update((each.id, each) for each in result.allocation.resizes)
    submitted = [_change(jobs[id_], 0, size_with[id_], reasons) for id_ in result.submitted if id_ in jobs]
    submitted += map(_new_cluster, result.clusters)
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
        "sentences": list(effect_sentences(result)[: 2 * MAX_CHANGES]),
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


def _new_cluster(outcome: RayClusterOutcome) -> dict[str, Any]:
    """As `_change`, counted in workers, with the head and the groups besides."""
    cluster, found = outcome.cluster, outcome.as_json()
    sizes = {
        "current": 0,
        "minimum": cluster.minimum,
        "maximum": cluster.maximum,
        "without": 0,
        "with": outcome.scheduled,
    }
    return {**found, **sizes}


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
