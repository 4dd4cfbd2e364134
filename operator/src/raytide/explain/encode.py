"""JSON form of an explanation, in a versioned schema.

`explanation.schema.json` in this package describes it (docs/why.md). Within one apiVersion fields are added and never renamed,
removed or given another meaning; a test keeps recorded answers valid. Called by `raytide why -o json`.
"""

from importlib.resources import files
from typing import Any, Final

import msgspec

from raytide.api.conditions import timestamp
from raytide.explain import messages
from raytide.explain.model import Blocker, Change, Explanation, GroupLine, PodLine, Shortage, StageLine, Warned
from raytide.fairshare.algorithm.format_quantity import spell

API_VERSION: Final = "raytide.io/v1alpha1"
KIND: Final = "Explanation"


def schema() -> dict[str, Any]:
    """The JSON Schema of `as_json`."""
    text = files("raytide.explain").joinpath("explanation.schema.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(text)
    return found


def as_json(explanation: Explanation) -> dict[str, Any]:
    """The explanation as a JSON object."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "object": {
            "kind": explanation.kind,
            "namespace": explanation.namespace,
            "name": explanation.name,
            "uid": explanation.uid,
        },
        "at": timestamp(explanation.at),
        "verdict": explanation.verdict.value,
        "exitCode": explanation.verdict.exit_code,
        "summary": explanation.summary,
        "size": {
            "wanted": explanation.wanted,
            "ready": explanation.ready,
            "needed": explanation.size.needed,
            "maximum": explanation.size.maximum,
        },
        "phase": explanation.size.phase.value,
        "phaseSince": explanation.size.since or None,
        "stages": [_stage(line) for line in explanation.stages],
        "blockers": [_blocker(each) for each in explanation.blockers],
        "changes": [_change(each) for each in explanation.changes],
        "groups": [_group(line) for line in explanation.groups],
        "pods": [_pod(line) for line in explanation.pods],
        "events": [_event(each) for each in explanation.events],
        "notes": list(explanation.notes),
        "unreadable": [{"resource": each.what, "message": each.error} for each in explanation.unreadable],
        "omitted": {
            "blockers": explanation.more_blockers,
            "groups": explanation.more_groups,
            "pods": explanation.more_pods,
        },
    }


def _stage(line: StageLine) -> dict[str, Any]:
    return {
        "stage": line.stage.value,
        "wanted": line.wanted,
        "found": line.found,
        "blocked": line.is_blocked,
        "message": line.text,
    }


def _blocker(each: Blocker) -> dict[str, Any]:
    return {
        "stage": each.stage.value,
        "group": each.group,
        "reason": each.reason,
        "message": each.message,
        "count": each.count,
        "since": each.since or None,
        "holder": each.holder,
        "cure": each.fix,
        "permanent": each.is_permanent,
        "shortages": [_shortage(short) for short in each.shortages],
    }


def _shortage(each: Shortage) -> dict[str, Any]:
    def amount(number: int) -> str:
        return spell(each.resource, number)

    return {
        "resource": each.resource,
        "perPod": amount(each.each),
        "needed": amount(each.needed),
        "free": amount(each.free),
        "freeOnOneNode": amount(each.most_free),
        "largestNode": amount(each.largest),
        "total": amount(each.total),
        "message": messages.short_of(each),
        "holders": [
            {
                "kind": one.kind,
                "namespace": one.namespace,
                "name": one.name,
                "amount": amount(one.amount),
                "note": one.note,
            }
            for one in each.holders
        ],
        "moreHolders": each.more_holders,
    }


def _change(each: Change) -> dict[str, Any]:
    return {
        "kind": each.kind,
        "namespace": each.namespace,
        "name": each.name,
        "group": each.group,
        "field": each.field.value,
        "from": each.before,
        "to": each.after,
        "message": messages.change(each),
        "command": messages.command_of(each),
        "effects": [
            {"kind": one.kind, "namespace": one.namespace, "name": one.name, "without": one.without, "with": one.having}
            for one in each.effects
        ],
    }


def _group(line: GroupLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "minimum": line.minimum,
        "maximum": line.maximum,
        "wanted": line.wanted,
        "pods": line.pods,
        "ready": line.ready,
        "reason": line.reason,
    }


def _pod(line: PodLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "group": line.group,
        "phase": line.phase,
        "node": line.node,
        "reason": line.reason,
        "message": line.message,
    }


def _event(each: Warned) -> dict[str, Any]:
    return {
        "pod": each.about,
        "reason": each.reason,
        "message": each.message,
        "at": each.at or None,
        "count": each.count,
    }
