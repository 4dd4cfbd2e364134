"""API client of the kubelet: JSON requests and endless watches.

Takes a base URL, a CA and a bearer token or client certificate. A rejection by the API server raises `ApiStatusError` with
its HTTP status; a timeout or a lost connection raises `ApiUnavailableError`; no other exception is raised. It works against the
embedded API server and a real one. It shares no code with the operator's own client on purpose, because the sandbox
exists to test that client.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from raytide_sandbox.certificates import Identity
from raytide_sandbox.connections import ClosingConnector

Manifest = Mapping[str, Any]

USER_AGENT: Final = "kubelet/v1.35.0 (linux) raytide"
MERGE_PATCH: Final = "application/merge-patch+json"
_TIMEOUT_S: Final = 15.0
_SILENCE_S: Final = 330.0
_WATCH_S: Final = 300
_PAGE: Final = 500
_LINE_BYTES: Final = 8 * 1024 * 1024
_MAX_DELAY_S: Final = 5.0


class ApiStatusError(Exception):
    """The API server rejected the request; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class ApiUnavailableError(Exception):
    """The API server did not answer, or the connection broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """Address of an API server and the credentials for it."""

    base_url: str
    token: str | None = None
    authority_pem: str | None = None
    identity: Identity | None = None
    """Client certificate, presented on every https connection."""

    def tls(self) -> ssl.SSLContext | None:
        """TLS context for https; None for plain http."""
        if not self.base_url.startswith("https:"):
            return None
        context = ssl.create_default_context(cadata=self.authority_pem)
        if self.identity:
            self.identity.load_into(context)
        return context


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One watch event: its type (ADDED, MODIFIED or DELETED) and the object."""

    type: str
    object: Manifest


class ApiClient:
    """One session with one API server."""

    def __init__(self, access: ApiAccess) -> None:
        tls = access.tls()
        self._base_url = access.base_url.rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=ClosingConnector(limit=64, ssl=tls if tls is not None else True),
            headers={"User-Agent": USER_AGENT} | ({"Authorization": f"Bearer {access.token}"} if access.token else {}),
            read_bufsize=_LINE_BYTES,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def get(self, path: str, **query: str) -> Manifest:
        """Get one object or list."""
        return await self.request("GET", path, query=query)

    async def merge_patch(self, path: str, patch: Manifest) -> Manifest:
        """Send a JSON merge patch (RFC 7386)."""
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
        """Send one request and return the decoded body; raises ApiStatusError and ApiUnavailableError."""
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
        except (aiohttp.ClientError, OSError) as error:
            raise ApiUnavailableError(f"{method} {path}: {error!r}") from error
        decoded = _decode(answer)
        if response.status >= 400:
            raise ApiStatusError(response.status, str(decoded.get("message") or answer[:200].decode(errors="replace")))
        return decoded

    async def list_and_watch(
        self, path: str, on_list: Callable[[list[Manifest]], None], *, field_selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """List, then watch forever: `on_list` receives each list and re-list, the iterator yields the watch events."""
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
            except ApiStatusError:
                version, delay_s = "", min(delay_s * 2 or 0.2, _MAX_DELAY_S)
            except ApiUnavailableError:
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
                    raise ApiStatusError(response.status, (await response.text())[:200])
                async for line in response.content:
                    event = _decode(line)
                    if event.get("type") == "ERROR" or "metadata" not in (event.get("object") or {}):
                        raise ApiStatusError(410, str(event)[:200])
                    yield WatchEvent(str(event["type"]), event["object"])
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ApiUnavailableError(f"watch {path}: {error!r}") from error


def _decode(answer: bytes) -> Manifest:
    try:
        decoded = json.loads(answer) if answer else {}
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}
