"""Recorded responses of a server, without values that differ from run to run.

A `Transcript` notes the answers to one question under labels and takes out what no two runs share: uids, versions, times,
addresses, the namespace's name. Two transcripts are then compared place by place. It never judges: what may differ, and
why, stands in differences.py.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from integration.probe.client import Answer, Client

Json = dict[str, Any]

HEADERS = ("content-type", "warning", "retry-after")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
VERSION = re.compile(r"(?<=ResourceVersion in record \()\d+|(?<=, current: )\d+|(?<=: )\d+ \(\d+\)")
DRAWN = {
    "resourceVersion": "VERSION",
    "clusterIP": "ADDRESS",
    "clusterIPs": "ADDRESS",
    "nodePort": "PORT",
    "healthCheckNodePort": "PORT",
}
"""Fields whose value the server draws, but for the values that mean something."""
MEANT = ("", "0", "None", ["None"])


class Transcript:
    """The answers to one question."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answers: Json = {}
        self._names: dict[str, str] = {client.namespace: "NS"}

    def note(self, label: str, answer: Answer, *, only: Callable[[Any], Any] | None = None) -> Answer:
        """Keep an answer, or a part of its body; gives the answer back as it was."""
        assert label not in self.answers, f"two answers called {label}"
        body = answer.body.decode() if isinstance(answer.body, bytes) else answer.body
        headers = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
        shown = body if only is None or answer.status >= 300 else only(body)
        self.answers[label] = self._normal({"status": answer.status, "headers": headers, "body": shown})
        return answer

    def note_events(self, label: str, events: list[Json]) -> None:
        """Keep what a watch sent."""
        self.answers[label] = self._normal(events)

    def _normal(self, value: Any, field: str = "") -> Any:
        if field in DRAWN and value not in MEANT:
            return DRAWN[field]
        if isinstance(value, dict):
            # In one order, so that uids are numbered alike; who owns a map itself (".") is not compared, only its fields.
            return {self._normal_text(key): self._normal(value[key], key) for key in sorted(value) if key != "."}
        if isinstance(value, list):
            return [self._normal(item) for item in value]
        return self._normal_text(value) if isinstance(value, str) else value

    def _normal_text(self, text: str) -> str:
        text = VERSION.sub("VERSION", TIME.sub("TIME", text))
        for uid in UID.finditer(text):
            self._names.setdefault(uid.group(), f"UID{len(self._names)}")
        for name, stand_in in self._names.items():
            text = text.replace(name, stand_in)
        return re.sub(r"kube-api-access-\w{5}", "kube-api-access-*", text)


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(place, embedded, real) wherever two transcripts differ; a place that only one of them has is absent in the other."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            place = f"{path} {key}" if "." in key or "/" in key else f"{path}.{key}"
            yield from differences(ours.get(key, "(absent)"), theirs.get(key, "(absent)"), place.lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif ours != theirs:
        yield path, ours, theirs


def shown(value: Any) -> str:
    """A value in one short line."""
    return json.dumps(value)[:300]
