"""Values of credentials in objects, which are removed from messages and logs too, whatever they look like there.

Learned from objects before they are redacted: values of variables, parameters and options whose names show what they are, and
passwords in URLs. Bounded. No I/O. Used by redact_objects.py.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from raytide.cli.diagnose.harmless import KEPT_FIELDS
from raytide.cli.diagnose.redact_text import is_sensitive, redact_text

MAX_SECRETS: Final = 2000
SHORTEST: Final = 4
LONGEST: Final = 4096
SHORTEST_NUMBER: Final = 6
_TOO_COMMON: Final = frozenset(
    {
        "true",
        "false",
        "none",
        "null",
        "disabled",
        "enabled",
        "default",
        "token",
        "basic",
        "password",
        "secret",
        "kubernetes",
    }
)
"""Values of variables such as RAY_AUTH_MODE; removing them would leave no readable log."""
_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector", "node_selector"})
"""Their values stay in objects, so they are no credentials."""
_NESTING: Final = 40
_TOKEN: Final = re.compile(r"[^\s;&|'\"]+")
_STAND_IN: Final = "eyJ" + 32 * "A"
"""A JWT, for redact_text. Removing a value before it would leave the rest of the word, after it half of a value that it has redacted."""
_IN_URL: Final = re.compile(r"://[^\s/:@]{0,256}:([^\s/@]{1,256})@")


class KnownSecrets:
    """The values learned so far."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._longest_first: tuple[str, ...] | None = None

    def learn(self, obj: Mapping[str, Any]) -> None:
        """Remember the credentials in this object."""
        for value in _secrets_in(obj, 0):
            if _is_worth_it(value) and len(self._values) < MAX_SECRETS:
                self._values.add(value)
                self._longest_first = None

    def redact(self, text: str) -> str:
        """The text without what looks like a credential, and without the words that contain one of these."""
        if self._longest_first is None:
            self._longest_first = tuple(sorted(self._values, key=len, reverse=True))
        for value in self._longest_first:
            if value in text:
                text = text.replace(value, _STAND_IN)
        return redact_text(text)


def _is_worth_it(value: str) -> bool:
    """Whether it can be told from ordinary words and numbers; `$NAME` refers to a variable."""
    shortest = SHORTEST_NUMBER if value.isdigit() else SHORTEST
    return shortest <= len(value) <= LONGEST and value.lower() not in _TOO_COMMON and not value.startswith("$")


def _secrets_in(value: Any, depth: int) -> Iterator[str]:
    if depth > _NESTING:
        return
    if isinstance(value, Mapping):
        yield from _secrets_of_fields(value)
        for key, each in value.items():
            if key not in _LABELS:
                yield from _secrets_in(each, depth + 1)
    elif isinstance(value, list):
        yield from _options(each for each in value if isinstance(each, str))
        for each in value:
            if not isinstance(each, str):
                yield from _secrets_in(each, depth + 1)
    elif isinstance(value, str):
        yield from _options((value,))


def _secrets_of_fields(fields: Mapping[str, Any]) -> Iterator[str]:
    """The value of a variable, and those of fields that are no fields of Kubernetes, such as parameters."""
    name, value = fields.get("name"), fields.get("value")
    if isinstance(name, str) and isinstance(value, str) and is_sensitive(name):
        yield value
    for key, each in fields.items():
        if isinstance(each, str) and key not in KEPT_FIELDS and is_sensitive(key):
            yield each
    for key in ("redisPassword", "redisUsername"):
        if isinstance(option := fields.get(key), Mapping) and isinstance(option.get("value"), str):
            yield option["value"]


def _options(texts: Iterable[str]) -> Iterator[str]:
    """`--password=…`, `--password …`, `TOKEN=… program`, `redis://user:…@host`."""
    is_next = False
    for text in texts:
        for match in _TOKEN.finditer(text):
            token = match[0]
            if is_next and not token.startswith("-"):
                yield token
            name, mark, secret = token.partition("=")
            is_next = token.startswith("-") and not mark and is_sensitive(token)
            if mark and is_sensitive(name):
                yield secret
        if "://" in text:
            yield from (match[1] for match in _IN_URL.finditer(text))
