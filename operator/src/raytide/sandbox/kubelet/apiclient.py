"""How does the kubelet talk to an API server?

Takes a base URL, a certificate authority and a token or a certificate of its own; offers requests with JSON bodies and
watches that never end. A refusal raises `ApiRefusal` with the server's status, silence or a lost connection raises
`ApiSilence`; nothing else escapes. An ordinary client on purpose: it works against the embedded API and against a real
one, and shares no code with the operator's own client, whose behaviour the sandbox is there to judge.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from raytide.sandbox.certificates import Identity

Manifest = Mapping[str, Any]

USER_AGENT: Final = "kubelet/v1.35.0 (linux) raytide"
MERGE_PATCH: Final = "application/merge-patch+json"
_TIMEOUT_S: Final = 15.0
_SILENCE_S: Final = 330.0
_WATCH_S: Final = 300
_PAGE: Final = 500
_LINE_BYTES: Final = 8 * 1024 * 1024
_MAX_DELAY_S: Final = 5.0


class ApiRefusal(Exception):  # noqa: N818 - an answer, not an error of ours
    """The server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class ApiSilence(Exception):  # noqa: N818 - an answer, not an error of ours
    """Nobody answered, or the connection broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """Where the API server is and how it knows us."""

    base_url: str
    token: str | None = None
    authority_pem: str | None = None
    identity: Identity | None = None
    """A certificate that says who we are; used where there is no token."""

    def tls(self) -> ssl.SSLContext | None:
        """The context for https; None for plain http."""
        if not self.base_url.startswith("https:"):
            return None
        context = ssl.create_default_context(cadata=self.authority_pem)
        if self.identity:
            self.identity.load_into(context)
        return context


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED or DELETED, and the object."""

    type: str
    object: Manifest


class ApiClient:
    """One session with one API server."""

    def __init__(self, access: ApiAccess) -> None:
        tls = access.tls()
        self._base_url = access.base_url.rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=64, ssl=tls if tls is not None else True),
            headers={"User-Agent": USER_AGENT} | ({"Authorization": f"Bearer {access.token}"} if access.token else {}),
            read_bufsize=_LINE_BYTES,
        )

    async def close(self) -> None:
        """Let go of every connection."""
        await self._session.close()

    async def get(self, path: str, **query: str) -> Manifest:
        """One object or list."""
        return await self.request("GET", path, query=query)

    async def merge_patch(self, path: str, patch: Manifest) -> Manifest:
        """RFC 7386."""
        return await self.request("PATCH", path, body=patch, content_type=MERGE_PATCH)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        """Send one request and give back the decoded answer; raises ApiRefusal and ApiSilence."""
        try:
            async with self._session.request(
                method,
                self._base_url + path,
                params=query,
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": content_type},
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, OSError) as trouble:
            raise ApiSilence(f"{method} {path}: {trouble!r}") from trouble
        decoded = _decode(answer)
        if response.status >= 400:
            raise ApiRefusal(response.status, str(decoded.get("message") or answer[:200].decode(errors="replace")))
        return decoded

    async def list_and_watch(
        self, path: str, on_list: Callable[[list[Manifest]], None], *, field_selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """Every object first (given to `on_list` together, also after each re-list), then each change, for ever."""
        version, delay_s = "", 0.0
        selected = {"fieldSelector": field_selector} if field_selector else {}
        while True:
            try:
                if not version:
                    items, version = await self._list(path, selected)
                    on_list(items)
                async for event in self._watch(path, version, selected):
                    delay_s = 0.0
                    version = event.object["metadata"]["resourceVersion"]
                    if event.type != "BOOKMARK":
                        yield event
            except ApiRefusal:
                version, delay_s = "", min(delay_s * 2 or 0.2, _MAX_DELAY_S)
            except ApiSilence:
                delay_s = min(delay_s * 2 or 0.2, _MAX_DELAY_S)
            await asyncio.sleep(delay_s)

    async def _list(self, path: str, selected: Mapping[str, str]) -> tuple[list[Manifest], str]:
        items: list[Manifest] = []
        query = {"limit": str(_PAGE), **selected}
        while True:
            answer = await self.request("GET", path, query=query)
            items += answer.get("items") or ()
            metadata = answer.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion") or "0")
            query["continue"] = metadata["continue"]

    async def _watch(self, path: str, version: str, selected: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        query = {
            **selected,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT_S, sock_read=_SILENCE_S)
        try:
            async with self._session.get(self._base_url + path, params=query, timeout=timeout) as response:
                if response.status != 200:
                    raise ApiRefusal(response.status, (await response.text())[:200])
                async for line in response.content:
                    event = _decode(line)
                    if event.get("type") == "ERROR" or "metadata" not in (event.get("object") or {}):
                        raise ApiRefusal(410, str(event)[:200])
                    yield WatchEvent(str(event["type"]), event["object"])
        except (aiohttp.ClientError, OSError, ValueError) as trouble:
            raise ApiSilence(f"watch {path}: {trouble!r}") from trouble


def _decode(answer: bytes) -> Manifest:
    try:
        decoded = json.loads(answer) if answer else {}
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}
