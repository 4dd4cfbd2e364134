"""API servers that the probe runs against.

`embedded()` runs the sandbox's own API server with its controllers in a thread, on a free port of loopback;
`from_kubeconfig()` describes a server that runs elsewhere. Both give an `Endpoint`, so every check asks any server.
"""

import asyncio
import base64
import random
import ssl
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from aiohttp import web

from raytide_sandbox.apiserver.http import application
from raytide_sandbox.apiserver.routes import Api
from raytide_sandbox.apiserver.store import Store
from raytide_sandbox.certificates import Certificates, make_certificates
from raytide_sandbox.controllers.manager import Controllers
from support.deadlines import PATIENCE

TOKEN = "probe-token"


@dataclass(frozen=True)
class Endpoint:
    host: str
    port: int
    token: str = ""
    authority: str = ""
    kubeconfig: str = ""
    tls: ssl.SSLContext | None = None
    is_embedded: bool = False

    @property
    def credentials(self) -> dict[str, str]:
        """Headers that authenticate the client; empty for a client certificate."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def without_credentials(self) -> "Endpoint":
        """The same server, without credentials."""
        bare = ssl.create_default_context(cadata=self.authority) if self.tls else None
        return replace(self, token="", tls=bare)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"


def build_api() -> Api:
    letters = random.Random(7)
    return Api(
        Store(now=lambda: datetime.now(UTC), new_uid=lambda: str(uuid.uuid4())),
        new_suffix=lambda: "".join(letters.choices("bcdfghjklmnpqrstvwxz2456789", k=5)),
    )


async def _run_controllers(api: Api) -> None:
    controllers = Controllers(api.store, authority="PEM", has_scheduler=False)
    changed = asyncio.Event()
    api.store.subscribe(lambda _: changed.set())
    while True:
        changed.clear()
        controllers.step(datetime.now(UTC))
        await changed.wait()


def _server_side(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_pair(context, certificates.server + certificates.server_key)
    return context


def _load_pair(context: ssl.SSLContext, pem: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(pem)
        context.load_cert_chain(pair)


async def _serve(
    api: Api, certificates: Certificates, ready: threading.Event, ports: list[int], ends: list[asyncio.Event]
) -> None:
    end = asyncio.Event()
    app = application(api, authenticate=lambda token: "prober" if token == TOKEN else None)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_server_side(certificates)).start()
    ports.append(runner.addresses[0][1])
    ends.append(end)
    controllers = asyncio.create_task(_run_controllers(api))
    ready.set()
    await end.wait()
    controllers.cancel()
    await asyncio.gather(controllers, return_exceptions=True)
    await runner.cleanup()


@contextmanager
def embedded() -> Iterator[Endpoint]:
    ready, ports, ends = threading.Event(), [], []
    certificates = make_certificates(datetime.now(UTC), ["127.0.0.1"])
    authority = certificates.authority.decode()
    loop = asyncio.new_event_loop()
    serving = _serve(build_api(), certificates, ready, ports, ends)
    thread = threading.Thread(target=lambda: loop.run_until_complete(serving))
    thread.start()
    assert ready.wait(10 * PATIENCE), "the server did not start"
    try:
        tls = ssl.create_default_context(cadata=authority)
        yield Endpoint("127.0.0.1", ports[0], TOKEN, authority, tls=tls, is_embedded=True)
    finally:
        loop.call_soon_threadsafe(ends[0].set)
        thread.join(10 * PATIENCE)
        loop.close()


def from_kubeconfig(path: str) -> Endpoint:
    config = yaml.safe_load(Path(path).read_text())
    context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
    cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
    user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
    url = urlsplit(cluster["server"])
    tls, authority = None, ""
    if url.scheme == "https":
        authority = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
        authority = authority or Path(cluster["certificate-authority"]).read_text()
        tls = ssl.create_default_context(cadata=authority)
        if "client-certificate-data" in user:
            pair = [base64.b64decode(user[name]) for name in ("client-certificate-data", "client-key-data")]
            _load_pair(tls, b"".join(pair))
    return Endpoint(url.hostname or "", url.port or 443, user.get("token", ""), authority, kubeconfig=path, tls=tls)
