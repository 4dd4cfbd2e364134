"""Objects of one workload, read from a running cluster with the rights of the caller.

Reads the workload, then its pods and its Warning events, then the nodes and Warning events of a few pods that are not ready.
What may not be read is recorded and does not end the rest; the workload itself must be readable. Memory and requests are
bounded, whatever the namespace has: at most 10,000 pods, 10 nodes and 3 pods with events. Called by `raytide why`, `raytide top` and
the Python client.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from raytide.api import constants, meta, trainingjob_constants
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Key, Manifest, Resource
from raytide.api.node import decode_node
from raytide.api.pod import decode_pod
from raytide.api.trainingjob_pod import decode_job_pod
from raytide.explain.model import (
    RAYCLUSTER,
    TRAININGJOB,
    AnyPod,
    NodeFacts,
    Objects,
    Unreadable,
    Warned,
)
from raytide.kube.client import Client
from raytide.kube.credentials import ClientConfigError
from raytide.kube.kubeconfig import load_client_config
from raytide.runtime.clock import Clock

RESOURCES: Final = {RAYCLUSTER: meta.RAYCLUSTERS, TRAININGJOB: meta.TRAININGJOBS}
POD_LABELS: Final = {RAYCLUSTER: constants.CLUSTER_LABEL, TRAININGJOB: trainingjob_constants.JOB_LABEL}
MAX_PODS: Final = 10_000
MAX_NODES: Final = 10
MAX_PODS_WITH_EVENTS: Final = 3
MAX_EVENTS: Final = 100
MAX_NAMES: Final = 10
TIMEOUT_S: Final = 10.0
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")

T = TypeVar("T")


class ReadError(Exception):
    """The workload cannot be read, or does not exist; the message is one line."""


CONDITION_EVENTS: Final = frozenset(
    {
        constants.WORKERS_MISSING,
        constants.SCALING_LIMITED,
        constants.REPLICAS_CONTENDED,
        trainingjob_constants.WAITING_FOR_RESOURCES,
    }
)
"""Reasons of events whose message is that of a condition: the explanation says the same, of now and with the names of holders."""


class AmbiguousError(ReadError):
    """Both kinds have an object of that name."""


def is_name(text: str) -> bool:
    """Whether the API server accepts it as the name of an object or of a namespace."""
    return _NAME.match(text) is not None


def unlisted(errors: Mapping[str, object]) -> list[str]:
    """What cannot be listed, by plural; those with the same error in one sentence."""
    plurals: dict[str, list[str]] = {}
    for plural, error in errors.items():
        plurals.setdefault(str(error), []).append(plural)
    return [f"{' and '.join(names)} cannot be listed: {error}" for error, names in plurals.items()]


@asynccontextmanager
async def connected(kubeconfig: str | Path | None, context: str | None) -> AsyncIterator[tuple[Client, str]]:
    """A client and the default namespace of the kubeconfig; raises ReadError."""
    try:
        config = await load_client_config(None if kubeconfig is None else Path(kubeconfig), context=context)
        transport = await config.open_transport()
    except ClientConfigError as error:
        raise ReadError(str(error)) from error
    try:
        yield Client(transport, clock=Clock(), timeout_s=TIMEOUT_S), config.namespace or "default"
    finally:
        await transport.close()


class WorkloadReader:
    """Reads workloads of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client: Final = client
        self._namespace = namespace

    async def read(self, kind: str, name: str) -> Objects:
        """The workload of that name with everything around it; an empty kind stands for both kinds. Raises ReadError."""
        kind, obj, unreadable = await self.find(kind, name)
        return await self.complete(kind, obj, unreadable)

    async def find(self, kind: str, name: str) -> tuple[str, Manifest, tuple[Unreadable, ...]]:
        """Kind and object of that name, and what could not be read; an empty kind stands for both kinds. Raises ReadError."""
        kinds = [kind] if kind else list(RESOURCES)
        results = await asyncio.gather(*(self._get(RESOURCES[each], name) for each in kinds), return_exceptions=True)
        found: dict[str, Manifest] = {}
        errors: list[str] = []
        for each, result in zip(kinds, results, strict=True):
            if isinstance(result, dict):
                found[each] = result
            elif isinstance(result, ApiStatusError | ApiUnavailableError):
                errors.append(f"{each} {self._namespace}/{name} cannot be read: {result}")
            elif result is not None:
                raise result
        if len(found) > 1:
            raise AmbiguousError(
                f"{' and '.join(f'{each} {self._namespace}/{name}' for each in found)} exist: "
                f"name one, such as raycluster/{name}"
            )
        if not found:
            raise ReadError(errors[0] if errors else await self._missing(kinds, name))
        kind, obj = next(iter(found.items()))
        return kind, obj, tuple(Unreadable(f"{each.partition(' ')[0]}", each) for each in errors)

    async def complete(self, kind: str, obj: Manifest, unreadable: Sequence[Unreadable] = ()) -> Objects:
        """The workload with everything around it that can be read."""
        name = str(obj["metadata"]["name"])
        notes = list(unreadable)
        pods, events = await asyncio.gather(self._pods(kind, name, notes), self._events(kind, name, "", notes))
        failing = [pod for pod in pods or () if not pod.is_running_and_ready]
        nodes, of_pods = await asyncio.gather(self._nodes(failing, notes), self._events_of_pods(failing))
        warned = sorted(
            (*(each for each in events if each.reason not in CONDITION_EVENTS), *of_pods),
            key=lambda each: each.at,
            reverse=True,
        )
        return Objects(kind, obj, pods, nodes, tuple(warned), tuple(notes))

    async def _get(self, resource: Resource, name: str) -> Manifest | None:
        return await self.client.get(resource, Key(self._namespace, name))

    async def _missing(self, kinds: Sequence[str], name: str) -> str:
        """That it does not exist, and what does: an object of the other kind with that name, else the names that may be listed."""
        error = f"there is no {' or '.join(kinds)} {name} in namespace {self._namespace}"
        for other in RESOURCES.keys() - {*kinds}:
            with suppress(ApiStatusError, ApiUnavailableError):  # a caller without `get` may have `list`
                if await self._get(RESOURCES[other], name) is not None:
                    return f"{error}: it is a {other}; use {other.lower()}/{name}"
        there = []
        for each in RESOURCES:
            try:
                async for page in self.client.pages(RESOURCES[each], self._namespace, page_size=MAX_NAMES + 1):
                    names = [msgspec.json.decode(item, type=_Named).metadata.name for item in page.items]
                    there += (
                        [f"{each} {', '.join(names[:MAX_NAMES])}{' …' if len(names) > MAX_NAMES else ''}"]
                        if names
                        else []
                    )
                    break
            except (ApiStatusError, ApiUnavailableError, msgspec.MsgspecError):
                continue
        exists = (
            f"there are {' and '.join(there)}"
            if there
            else "it has neither RayClusters nor TrainingJobs that you may list"
        )
        return f"{error}: {exists}"

    async def _pods(self, kind: str, name: str, notes: list[Unreadable]) -> tuple[AnyPod, ...] | None:
        decode = decode_pod if kind == RAYCLUSTER else decode_job_pod
        selector = f"{POD_LABELS[kind]}={name}"
        pods: list[AnyPod] = []
        try:
            async for page in self.client.pages(meta.PODS, self._namespace, label_selector=selector):
                pods.extend(map(decode, page.items))
                if len(pods) >= MAX_PODS:
                    notes.append(Unreadable("pods", f"only the first {len(pods)} pods were read"))
                    break
        except (ApiStatusError, ApiUnavailableError, msgspec.MsgspecError) as error:
            notes.append(_unreadable("pods", error))
            return None
        return tuple(pods)

    async def _nodes(self, pods: Iterable[AnyPod], notes: list[Unreadable]) -> dict[str, NodeFacts]:
        names = list(dict.fromkeys(pod.node_name for pod in pods if pod.node_name))[:MAX_NODES]
        results = await asyncio.gather(*map(self._node, names), return_exceptions=True)
        found: dict[str, NodeFacts] = {}
        for name, result in zip(names, results, strict=True):
            if isinstance(result, NodeFacts):
                found[name] = result
            elif isinstance(result, ApiStatusError | ApiUnavailableError | msgspec.MsgspecError):
                notes.append(_unreadable("nodes", result))
                break
            else:
                raise result
        return found

    async def _node(self, name: str) -> NodeFacts:
        obj = await self.client.get(meta.NODES, Key("", name))
        if obj is None:
            return NodeFacts(is_ready=False, exists=False)
        return NodeFacts(decode_node(msgspec.json.encode(obj)).is_ready)

    async def _events_of_pods(self, pods: Sequence[AnyPod]) -> list[Warned]:
        names = [pod.name for pod in pods[:MAX_PODS_WITH_EVENTS]]
        found = await asyncio.gather(*(self._events("Pod", name, name, []) for name in names))
        return [each for events in found for each in events]

    async def _events(self, kind: str, name: str, about: str, notes: list[Unreadable]) -> list[Warned]:
        """The Warning events of the first page, which has the most recent ones of all but extremely noisy objects."""
        selector = f"involvedObject.kind={kind},involvedObject.name={name},type=Warning"
        try:
            async for page in self.client.pages(
                meta.EVENTS, self._namespace, field_selector=selector, page_size=MAX_EVENTS
            ):
                return [_warned(msgspec.json.decode(item, type=_Event), about) for item in page.items]
        except (ApiStatusError, ApiUnavailableError, msgspec.MsgspecError) as error:
            notes.append(_unreadable("events", error))
        return []


def _unreadable(what: str, error: Exception) -> Unreadable:
    return Unreadable(what, f"{what} cannot be read: {error}")


class _Meta(msgspec.Struct, gc=False):
    name: str = ""


class _Named(msgspec.Struct, gc=False):
    metadata: _Meta


class _Series(msgspec.Struct, gc=False, rename="camel"):
    last_observed_time: str | None = None
    count: int | None = None


class _Event(msgspec.Struct, gc=False, rename="camel"):
    reason: str | None = None
    message: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    count: int | None = None
    series: _Series | None = None


def _warned(event: _Event, about: str) -> Warned:
    series = event.series or _Series()
    at = series.last_observed_time or event.last_timestamp or event.event_time or ""
    return Warned(event.reason or "", event.message or "", about, at, series.count or event.count or 1)
