"""A mutating webhook on loopback that removes one label of new pods, registered for one namespace.

The API server of the control plane calls it over TLS. Used by test_admission.py.
"""

import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from aiohttp import web

from acceptance.environment import Env
from raytide_sandbox.certificates import Identity, make_certificates

HOST = "127.0.0.1"
NAME = "strip.raytide.example"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class LabelRemover:
    """Answers AdmissionReviews; counts those that it has changed."""

    def __init__(self, label: str) -> None:
        self._label = label
        self.changed = 0

    async def review(self, request: web.Request) -> web.Response:
        """One AdmissionReview."""
        asked = (await request.json())["request"]
        labels = asked["object"]["metadata"].get("labels", {})
        response: dict[str, object] = {"uid": asked["uid"], "allowed": True}
        if self._label in labels:
            self.changed += 1
            path = "/metadata/labels/" + self._label.replace("~", "~0").replace("/", "~1")
            patch = json.dumps([{"op": "remove", "path": path}]).encode()
            response |= {"patchType": "JSONPatch", "patch": b64encode(patch).decode()}
        kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response({**kind, "response": response})


@asynccontextmanager
async def removing_label(env: Env, label: str) -> AsyncIterator[LabelRemover]:
    """As long as this lasts, pods that are created in the scenario's namespace lose that label."""
    certificates = make_certificates(datetime.now(UTC), [HOST])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    Identity(certificates.server, certificates.server_key).load_into(context)
    remover = LabelRemover(label)
    application = web.Application()
    application.router.add_post("/", remover.review)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    webhook = {
        "name": NAME,
        "clientConfig": {"url": f"https://{HOST}:{port}/", "caBundle": b64encode(certificates.authority).decode()},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": env.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }
    configuration = {"metadata": {"name": env.namespace}, "webhooks": [webhook]}
    await env.admin.call("POST", WEBHOOKS, configuration)
    try:
        yield remover
    finally:
        await env.admin.call("DELETE", f"{WEBHOOKS}/{env.namespace}")
        await runner.cleanup()
