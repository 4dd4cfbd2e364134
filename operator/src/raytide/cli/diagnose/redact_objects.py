"""Redaction of Kubernetes objects: keep what is known to be harmless, replace the rest by marks that can be compared.

Takes an object as JSON and returns a copy in which only listed fields have their values: names, numbers, quantities, labels, states.
Everything else becomes a mark with a keyed hash, unknown fields as a whole, so that a field of a newer Kubernetes version, or one
that another client added, is redacted until it is listed. Equal values of one bundle have equal marks: that a variable of the head is
not that of a worker can be seen. The key is forgotten with the Redactor, so that a reader cannot try values. Commands keep the words of
`ray start` and of Raytide's own programs; texts are redacted by redact_text.py. Pure. Called by collect.py; docs/diagnose.md
describes it.
"""

import hmac
import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from raytide.api.meta import Manifest
from raytide.cli.diagnose.harmless import (
    COMMAND_FIELDS,
    COMMAND_WORDS,
    DROPPED_FIELDS,
    ENTRIES,
    FLAGS,
    FREE_FIELDS,
    KEPT_FIELDS,
    NODE_LABEL_DOMAINS,
    RECORDS,
    START_COMMAND,
    TEXT_FIELDS,
)
from raytide.cli.diagnose.redact_text import REDACTED, redact_text

DEEPEST: Final = 40
"""Levels of an object; deeper ones are redacted."""

_NAME: Final = re.compile(r"[A-Za-z0-9/_.:,*+-]{0,512}(?:@sha256:[0-9a-f]{64})?", re.ASCII)
_TOKEN: Final = re.compile(r"[^\s;&|'\"]+")


class Redactor:
    """Redacts objects and texts, and counts what it has replaced."""

    def __init__(self, key: bytes, operator_flags: Iterable[str] = ()) -> None:
        """`key` of the hashes: random bytes; `operator_flags` of `raytide operator`, without `--`: their values stay."""
        self.counts: Counter[str] = Counter()
        """What was replaced -> how often."""
        self._key = key
        self._flags = FLAGS.union(operator_flags)

    def text(self, text: str, what: str = "parts of messages") -> str:
        """The text without what looks like a credential."""
        redacted = redact_text(text)
        if redacted != text:
            self.counts[what] += max(1, redacted.count(REDACTED) - text.count(REDACTED))
        return redacted

    def texts(self, value: Any) -> Any:
        """A JSON value of Raytide's own making, whose strings are redacted as text."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.texts(each) for key, each in value.items()}
        return [self.texts(each) for each in value] if isinstance(value, list | tuple) else value

    def object(self, obj: Manifest) -> Manifest:
        """The object with the values that are known to be harmless."""
        redacted: Manifest = self._walk(obj)
        return redacted

    def metadata_only(self, obj: Manifest) -> Manifest:
        """The object's kind and metadata, without its content."""
        return self.object({key: obj[key] for key in ("apiVersion", "kind", "metadata") if key in obj})

    def _walk(self, value: Any, field: str = "", depth: int = 0, *, is_free: bool = False) -> Any:
        """The value of this field; below a free one each key stays."""
        if depth >= DEEPEST:
            return self._mark(value, "unknown fields")
        if isinstance(value, list | tuple):
            return [self._walk(each, field, depth + 1, is_free=is_free) for each in value]
        if not isinstance(value, Mapping):
            return self._scalar(value)
        found: dict[str, Any] = {}
        for key, each in value.items():
            if key in DROPPED_FIELDS:
                self.counts[f"fields `{key}`"] += 1
            elif not _is_name(key):
                found[REDACTED] = self._mark(each, "entries of maps")
            elif is_free:
                found[key] = self._walk(each, key, depth + 1, is_free=True)
            else:
                found[key] = self._field(key, each, field, depth + 1)
        return found

    def _field(self, key: str, value: Any, parent: str, depth: int) -> Any:
        if value is None:
            return None
        if key in TEXT_FIELDS and isinstance(value, str):
            # the message of a container that ended is the end of the log of the user's program
            return self._mark(value, "termination messages") if parent == "terminated" else self.text(value)
        if key in COMMAND_FIELDS:
            return self._command(value)
        if key in ENTRIES:
            return self._entries(value, key, depth)
        if key in FREE_FIELDS or key in KEPT_FIELDS:
            return self._walk(value, key, depth, is_free=key in FREE_FIELDS)
        return self._mark(value, "unknown fields")

    def _entries(self, value: Any, field: str, depth: int) -> Any:
        """Annotations, parameters and variables: a map, or a list of `name`, `value` and `valueFrom`."""
        allowed, what = ENTRIES[field], "values of variables, parameters and annotations"
        if isinstance(value, Mapping):
            kept = {key: each for key, each in value.items() if key not in DROPPED_FIELDS and _is_name(key)}
            self.counts["entries of maps"] += len(value) - len(kept)
            return {key: self._entry(key, each, allowed, what) for key, each in kept.items()}
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            return self._mark(value, what)
        return [
            {
                key: self._entry(str(each.get("name")), one, allowed, what)
                if key == "value"
                else self._walk(one, key, depth)
                for key, one in each.items()
                if key in ("name", "value", "valueFrom")
            }
            for each in value
        ]

    def _entry(self, name: str, value: Any, allowed: Container[str], what: str) -> Any:
        if name == START_COMMAND:
            return self._command(value)
        if name in RECORDS and isinstance(value, str):
            parse, encode = RECORDS[name]
            record = parse(value)  # without fields that others added
            return self._mark(value, what) if record is None else json.dumps(self.texts(json.loads(encode(record))))
        if name in allowed:
            return self.text(value) if isinstance(value, str) else self._scalar(value)
        return self._mark(value, what) if value else value

    def _command(self, value: Any) -> Any:
        """The known words of a command, and a mark for each other one."""
        if isinstance(value, list | tuple):
            return [self._command(each) for each in value]
        if not isinstance(value, str):
            return self._mark(value, "words of commands")
        return _TOKEN.sub(lambda match: self._word(match[0]), value)

    def _word(self, word: str) -> str:
        if word in COMMAND_WORDS:
            return word
        option, mark, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and option in self._flags:
            return f"--{option}{mark}{self._scalar(value, 'words of commands')}"
        return self._mark(word, "words of commands")

    def _scalar(self, value: Any, what: str = "values that are no names") -> Any:
        """Numbers, and strings that look like names, images, paths or times."""
        if value is None or isinstance(value, bool | int | float):
            return value
        return value if isinstance(value, str) and _is_name(value) else self._mark(value, what)

    def _mark(self, value: Any, what: str) -> str:
        self.counts[what] += 1
        digest = hmac.digest(self._key, json.dumps(value, sort_keys=True, default=str).encode(), "sha256")
        return f"{REDACTED[:-1]} {digest.hex()[:8]}>"


@lru_cache(maxsize=8192)
def _is_name(text: str) -> bool:
    """Whether it has the form of a name, an image, a path or a time, and does not look like a credential."""
    return _NAME.fullmatch(text) is not None and redact_text(text) == text


def reduced_node(node: Manifest, label_keys: Iterable[str], redactor: Redactor) -> Manifest:
    """What matters for scheduling: labels of Kubernetes and clouds and those of `label_keys`, taints, capacity, conditions."""
    metadata, spec, status = (node.get(part) or {} for part in ("metadata", "spec", "status"))
    chosen = set(label_keys)
    labels = {
        key: value
        for key, value in (metadata.get("labels") or {}).items()
        if key in chosen or key.partition("/")[0].endswith(NODE_LABEL_DOMAINS)
    }
    return redactor.object(
        {
            "metadata": {**{key: metadata.get(key) for key in ("name", "creationTimestamp")}, "labels": labels},
            "spec": {key: spec[key] for key in ("taints", "unschedulable") if spec.get(key)},
            "status": {
                key: status[key] for key in ("allocatable", "capacity", "conditions", "nodeInfo") if status.get(key)
            },
        }
    )


def reduced_event(event: Manifest, redactor: Redactor) -> Manifest:
    """Type, reason, message, object, component, times and count."""
    series, source, about = (event.get(part) or {} for part in ("series", "source", "involvedObject"))
    found = {
        "type": event.get("type"),
        "reason": event.get("reason"),
        "object": f"{about.get('kind')}/{about.get('name')}",
        "message": event.get("message"),
        "component": event.get("reportingComponent") or source.get("component"),
        "first": event.get("firstTimestamp") or event.get("eventTime"),
        "last": series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime"),
        "count": series.get("count") or event.get("count"),
    }
    redacted: Manifest = redactor.texts(found)
    return redacted


def reduced_definition(definition: Manifest, redactor: Redactor) -> Manifest:
    """A CustomResourceDefinition without its schemas."""
    spec = definition.get("spec") or {}
    versions = [
        {key: each.get(key) for key in ("name", "served", "storage", "deprecated") if key in each}
        for each in spec.get("versions") or ()
    ]
    return redactor.object(
        {**definition, "spec": {**{key: spec.get(key) for key in ("group", "scope", "names")}, "versions": versions}}
    )
