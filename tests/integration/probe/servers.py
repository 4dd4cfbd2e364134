"""Which API servers does the probe ask?

`embedded()` runs the sandbox's own API server with its controllers in a thread, on a free port of loopback;
`from_kubeconfig()` describes a server that runs elsewhere. Both give an `Endpoint`, so every check asks any server.
"""

import asyncio
import base64
import os
import random
import ssl
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from aiohttp import web

from raytide.sandbox.apiserver.http import application
from raytide.sandbox.apiserver.routes import Api
from raytide.sandbox.apiserver.store import Store
from raytide.sandbox.certificates import Certificates, make_certificates
from raytide.sandbox.controllers import Controllers

TOKEN = "probe-token"


@dataclass(frozen=True)
class Endpoint:
    host: str
    port: int
    token: str = ""
    authority: str = ""
    kubeconfig: str = ""
    tls: ssl.SSLContext | None = None

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
    assert ready.wait(10), "the server did not start"
    try:
        yield Endpoint("127.0.0.1", ports[0], TOKEN, authority, tls=ssl.create_default_context(cadata=authority))
    finally:
        loop.call_soon_threadsafe(ends[0].set)
        thread.join(10)
        loop.close()


def from_kubeconfig(path: str) -> Endpoint:
    config = yaml.safe_load(Path(path).read_text())
    context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
    cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
    user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
    url = urlsplit(cluster["server"])
    tls = None
    if url.scheme == "https":
        authority = cluster.get("certificate-authority-data")
        tls = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"),
            cadata=base64.b64decode(authority).decode() if authority else None,
        )
        if "client-certificate-data" in user:
            pair = [base64.b64decode(user[name]) for name in ("client-certificate-data", "client-key-data")]
            _load_pair(tls, b"".join(pair))
    return Endpoint(url.hostname or "", url.port or 443, user.get("token", ""), kubeconfig=path, tls=tls)


SERVERS = ["embedded", *(["kubeconfig"] if os.environ.get("RAYTIDE_PROBE_KUBECONFIG") else [])]


@contextmanager
def server(kind: str) -> Iterator[Endpoint]:
    if kind == "embedded":
        with embedded() as endpoint:
            yield endpoint
    else:
        yield from_kubeconfig(os.environ["RAYTIDE_PROBE_KUBECONFIG"])
