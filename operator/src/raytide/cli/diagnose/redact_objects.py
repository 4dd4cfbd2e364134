"""Redaction of Kubernetes objects: keep what is known to be harmless, replace the rest.

Takes an object as JSON and returns a copy in which only listed fields have their values: names, numbers, quantities, labels, states.
Everything else is replaced, unknown fields as a whole, so that a field of a newer Kubernetes version, or one that another client
added, is redacted until it is listed here. Environment variables keep a value only if Raytide or KubeRay sets them and the value
has the form that they give it; commands keep the words of `ray start` and of Raytide's own programs. Texts are redacted by
redact_text.py. Pure. Called by collect.py; docs/diagnose.md describes it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from raytide.api.meta import Manifest
from raytide.cli.diagnose.harmless import (
    ANNOTATION_FORMS,
    COMMAND_WORDS,
    DROPPED_ANNOTATIONS,
    DROPPED_FIELDS,
    FLAGS,
    HARMLESS_START_PARAMS,
    HARMLESS_VARIABLES,
    KEPT_FIELDS,
    NODE_LABEL_DOMAINS,
    RECORDS,
    START_COMMAND,
)
from raytide.cli.diagnose.known_secrets import KnownSecrets
from raytide.cli.diagnose.redact_text import REDACTED, redact_text

DEEPEST: Final = 40
"""Levels of an object; deeper ones are redacted."""
MAX_ENTRIES: Final = 1000
"""Entries of one list or map; the API server limits objects by bytes only."""

_NAME: Final = re.compile(r"[A-Za-z0-9/_.:,*+-]{0,512}(?:@sha256:[0-9a-f]{64})?", re.ASCII)
_QUANTITY: Final = re.compile(r"-?[0-9.]{1,32}(?:[eE][0-9]{1,3}|[a-zA-Z%]{0,2})", re.ASCII)
_FIELD_PATH: Final = re.compile(r"[a-z][A-Za-z.]{0,63}(?:\['[A-Za-z0-9./_-]{1,253}'\])?", re.ASCII)
_TOKEN: Final = re.compile(r"[^\s;&|'\"]+")
_SEVERAL: Final = re.compile(rf"{REDACTED}(?:\s+{REDACTED})+")


class Redactor:
    """Redacts objects and texts, and counts what it has replaced."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """What was replaced -> how often."""
        self._known = KnownSecrets()
        self._special: dict[str, Callable[[Any, int], Any]] = {
            "annotations": self._annotations,
            "headServiceAnnotations": self._annotations,
            **dict.fromkeys(("labels", "matchLabels", "nodeSelector", "node_selector"), self._labels),
            **dict.fromkeys(("stateTransitionTimes", "incidents", "endpoints"), self._labels),
            "selector": self._selector,
            "env": self._variables,
            "envs": self._variable_map,
            "envFrom": self._walk,
            **dict.fromkeys(("command", "args", "entrypoint", "preStopCmd", "pre_stop_cmd"), self._command),
            "rayStartParams": self._start_params,
            "resources": self._resources,
            **dict.fromkeys(
                ("limits", "requests", "capacity", "allocatable", "allocatedResources", "overhead", "hard", "used"),
                self._quantities,
            ),
            "sizeLimit": self._quantity,
            "fieldPath": self._field_path,
            "tolerations": self._with_value,
            "taints": self._with_value,
            "terminated": self._terminated,
            **dict.fromkeys(("message", "reason", "note", "osImage"), self._text),
            "redisAddress": self._address,
        }

    # --- texts -----------------------------------------------------------------------------------------------------------

    def text(self, text: str, what: str = "parts of messages") -> str:
        """The text without what looks like a credential."""
        redacted = self._known.redact(text)
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

    # --- objects ---------------------------------------------------------------------------------------------------------

    def object(self, obj: Manifest) -> Manifest:
        """The object with the values that are known to be harmless; its credentials are removed from later texts too."""
        self._known.learn(obj)
        redacted: Manifest = self._walk(obj, 0)
        return redacted

    def metadata_only(self, obj: Manifest) -> Manifest:
        """The object's kind and metadata, without its content."""
        return self.object({key: obj[key] for key in ("apiVersion", "kind", "metadata") if key in obj})

    def _walk(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, Mapping):
            return self._map(value, depth, self._field)
        if isinstance(value, list | tuple):
            if depth >= DEEPEST:
                return self._redacted("unknown fields")
            more = len(value) - MAX_ENTRIES
            ending = [f"{REDACTED} ({more} more entries)"] if more > 0 else []
            return [*(self._walk(each, depth + 1) for each in value[:MAX_ENTRIES]), *ending]
        return self._scalar(value)

    def _field(self, key: str, value: Any, depth: int) -> Any:
        if value is None:
            return None
        if key in self._special:
            return self._special[key](value, depth)
        if key in KEPT_FIELDS:
            return self._walk(value, depth)
        return self._redacted("unknown fields")

    def _map(self, value: Mapping[str, Any], depth: int, field: Callable[[str, Any, int], Any]) -> Any:
        if depth >= DEEPEST:
            return self._redacted("unknown fields")
        found: dict[str, Any] = {}
        for count, (key, each) in enumerate(value.items()):
            if key in DROPPED_FIELDS:
                self.counts[f"fields `{key}`"] += 1
            elif count >= MAX_ENTRIES or not _is_name(key):
                found[REDACTED] = self._redacted("entries of maps")
            else:
                found[key] = field(key, each, depth + 1)
        return found

    def _scalar(self, value: Any, what: str = "values that are no names") -> Any:
        """Numbers, and strings that look like names, images, paths or times."""
        if value is None or isinstance(value, bool | int | float):
            return value
        return value if isinstance(value, str) and _is_name(value) else self._redacted(what)

    def _redacted(self, what: str) -> str:
        self.counts[what] += 1
        return REDACTED

    # --- single fields ---------------------------------------------------------------------------------------------------

    def _text(self, value: Any, _depth: int) -> Any:
        return self.text(value) if isinstance(value, str) else self._redacted("parts of messages")

    def _address(self, value: Any, _depth: int) -> Any:
        """Without user and password."""
        address = redact_text(value) if isinstance(value, str) else REDACTED
        return self._redacted("parts of messages") if self._known.redact(address) != address else address

    def _annotations(self, value: Any, depth: int) -> Any:
        if not isinstance(value, Mapping):
            return self._redacted("annotations")
        kept = {key: each for key, each in value.items() if key not in DROPPED_ANNOTATIONS}
        self.counts["annotations"] += len(value) - len(kept)
        return self._map(kept, depth, self._annotation)

    def _annotation(self, key: str, value: Any, _depth: int) -> Any:
        if isinstance(value, str) and key in RECORDS:
            return self._record(*RECORDS[key], value)
        form = ANNOTATION_FORMS.get(key)
        if form is not None and isinstance(value, str) and form.fullmatch(value):
            return value
        return self._redacted("annotations")

    def _record(self, parse: Callable[[str], Any], encode: Callable[[Any], str], text: str) -> str:
        """What the autoscaler or fair sharing recorded, as they would write it: without fields that others added."""
        record = parse(text)
        return self._redacted("annotations") if record is None else json.dumps(self.texts(json.loads(encode(record))))

    def _labels(self, value: Any, depth: int) -> Any:
        if not isinstance(value, Mapping):
            return self._scalar(value, "labels")
        return self._map(value, depth, lambda _, each, __: self._scalar(each, "labels"))

    def _selector(self, value: Any, depth: int) -> Any:
        """Of a Service a map of labels; of others a LabelSelector; of a status a text."""
        if isinstance(value, str):
            return value if all(_is_name(part) for part in re.split("[=,]", value)) else self._redacted("labels")
        if isinstance(value, Mapping) and ("matchLabels" in value or "matchExpressions" in value):
            return self._walk(value, depth)
        return self._labels(value, depth)

    def _variables(self, value: Any, depth: int) -> Any:
        if not isinstance(value, list):
            return self._redacted("values of environment variables")
        return [self._variable(each, depth) for each in value[:MAX_ENTRIES]]

    def _variable(self, entry: Any, depth: int) -> Any:
        if not isinstance(entry, Mapping) or not _is_name(str(entry.get("name", ""))):
            return self._redacted("values of environment variables")
        found: dict[str, Any] = {"name": entry.get("name")}
        if entry.get("value") is not None:
            found["value"] = self._variables_value(str(entry.get("name")), entry["value"])
        if entry.get("valueFrom") is not None:
            found["valueFrom"] = self._walk(entry["valueFrom"], depth + 1)
        return found

    def _variable_map(self, value: Any, depth: int) -> Any:
        if not isinstance(value, Mapping):
            return self._redacted("values of environment variables")
        return self._map(value, depth, lambda name, each, _: self._variables_value(name, each))

    def _variables_value(self, name: str, value: Any) -> str:
        if value == "":
            return ""
        if isinstance(value, str):
            if name == START_COMMAND:
                return self._line(value)
            form = HARMLESS_VARIABLES.get(name)
            if form is not None and form.fullmatch(value):
                return value
        return self._redacted("values of environment variables")

    def _command(self, value: Any, _depth: int) -> Any:
        if isinstance(value, list | tuple):
            return [self._line(each) for each in value[:MAX_ENTRIES]]
        return self._line(value)

    def _line(self, text: Any) -> str:
        """The known words of a command; each other word, and each run of them, becomes one mark."""
        if not isinstance(text, str):
            return self._redacted("words of commands")
        return _SEVERAL.sub(REDACTED, _TOKEN.sub(lambda match: self._word(match[0]), text))

    def _word(self, word: str) -> str:
        if word in COMMAND_WORDS:
            return word
        option, mark, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and option in FLAGS:
            return f"--{option}{mark}{self._scalar(value, 'words of commands')}"
        return self._redacted("words of commands")

    def _start_params(self, value: Any, depth: int) -> Any:
        if not isinstance(value, Mapping):
            return self._redacted("rayStartParams")
        return self._map(value, depth, self._start_param)

    def _start_param(self, name: str, value: Any, _depth: int) -> Any:
        return (
            self._scalar(value, "rayStartParams") if name in HARMLESS_START_PARAMS else self._redacted("rayStartParams")
        )

    def _resources(self, value: Any, depth: int) -> Any:
        """`limits`, `requests` and `claims` of a container, or quantities of a worker group."""
        if not isinstance(value, Mapping):
            return self._redacted("quantities")
        return self._map(
            value,
            depth,
            lambda key, each, deeper: (
                self._field(key, each, deeper)
                if key in ("limits", "requests", "claims")
                else self._quantity(each, deeper)
            ),
        )

    def _quantities(self, value: Any, depth: int) -> Any:
        if not isinstance(value, Mapping):
            return self._quantity(value, depth)
        return self._map(value, depth, lambda _, each, deeper: self._quantity(each, deeper))

    def _quantity(self, value: Any, _depth: int) -> Any:
        if isinstance(value, bool | int | float) or (isinstance(value, str) and _QUANTITY.fullmatch(value)):
            return value
        return self._redacted("quantities")

    def _field_path(self, value: Any, _depth: int) -> Any:
        """`metadata.name`, or `metadata.labels['ray.io/cluster']`."""
        return value if isinstance(value, str) and _FIELD_PATH.fullmatch(value) else self._redacted("unknown fields")

    def _with_value(self, value: Any, depth: int) -> Any:
        """Tolerations and taints have a field `value`; elsewhere it may be anything."""
        if not isinstance(value, list):
            return self._redacted("unknown fields")
        return [
            self._map(
                each,
                depth,
                lambda key, field, deeper: self._scalar(field) if key == "value" else self._field(key, field, deeper),
            )
            if isinstance(each, Mapping)
            else self._redacted("unknown fields")
            for each in value[:MAX_ENTRIES]
        ]

    def _terminated(self, value: Any, depth: int) -> Any:
        """Without the message: it is the end of the log of the user's program."""
        if not isinstance(value, Mapping):
            return self._redacted("termination messages")
        kept = {key: each for key, each in value.items() if key != "message"}
        found: dict[str, Any] = self._map(kept, depth, self._field)
        return {**found, "message": self._redacted("termination messages")} if value.get("message") else found


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
