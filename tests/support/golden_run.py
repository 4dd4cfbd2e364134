"""Runs the real controller on the golden RayClusters and captures the result.

Every file of `tests/golden/specs` is given to the sandbox's API as kubectl would, beside the room, its informers and its
executor, in virtual time; nodes make every pod Ready that asks for no accelerator. Gives, per file, what the recorder
wrote down of KubeRay: answers, children, status and events (tests/golden/README.md). Two ways in: server-side
apply and create.
"""

import asyncio
import functools
import random
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import yaml

from raytide.api.config import AutoscalerConfig, AutoscalerMode, ClusterConfig, PodConfig
from raytide_sandbox.apiserver.routes import Request
from support import virtual_time
from support.golden_differences import Fate, fields_without_effect
from support.golden_recorder import build_record
from support.golden_records import GOLDEN, NODE_TROUBLE_TOLERATIONS, read_spec, spec_files, with_server_defaults

from simulation.in_process_transport import InProcessTransport
from simulation.operator_under_test import OperatorUnderTest, SimulatedClock
from simulation.simulated_kube import SimulatedKube

NAMESPACE = "golden-ns"
CLUSTER = "RayCluster"
SETTLED_AFTER_S = 90.0
RESOURCES = {
    "RayCluster": "/apis/ray.io/v1/namespaces/{}/rayclusters",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
}
CHILDREN = (
    *("pods", "services", "serviceaccounts", "secrets", "persistentvolumeclaims", "jobs.batch"),
    *("ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io"),
    *("roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"),
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """One file's fate."""

    record: Json
    """In the shape of a recording."""
    raw_status: Json = field(default_factory=dict)
    mode: AutoscalerMode = "raytide"
    notes: str = ""
    """The messages of events, for texts that a user must find there."""

    @property
    def rejected(self) -> str:
        """The API server's words, empty when the RayCluster was taken."""
        return next((error for *_, code, error in self.record["applied"] if code), "")

    @property
    def objects(self) -> dict[str, Json]:
        """Its children as recorded."""
        return self.record["objects"]

    @property
    def events(self) -> set[tuple[str, str]]:
        """Types and reasons."""
        return {(kind, reason) for kind, reason, _ in self.record["events"]}

    def condition(self, kind: str) -> Json:
        """One condition with its message; empty when it is not there."""
        return next((c for c in self.raw_status.get("conditions", ()) if c["type"] == kind), {})

    def fate_beside(self, recorded: Json) -> Fate:
        """Ours and KubeRay's."""
        settings_without_effect = fields_without_effect(self.raw_status)
        return Fate(read_spec(recorded["file"]), recorded, self.record, settings_without_effect, self.mode)


class Fleet(SimulatedKube):
    """Nodes without labels and accelerators, as the recordings were made on."""

    def _on_pod(self, change: Any) -> None:
        if change.type != "ADDED" or fits(change.entry.obj()["spec"]):
            super()._on_pod(change)


def fits(spec: Json) -> bool:
    """Whether the pod has no node constraints, and requests only CPU and memory."""
    limits = [container.get("resources", {}).get("limits", {}) for container in spec["containers"]]
    return not spec.get("nodeSelector") and not any("/" in name for limit in limits for name in limit)


def seen_of_all(way: str) -> dict[str, Seen]:
    """All files at once; `way` is apply or create."""
    return seen_of(tuple(spec_files()), way, "raytide")


@functools.cache
def seen_of(files: tuple[str, ...], way: str, mode: AutoscalerMode) -> dict[str, Seen]:
    """Some files at once; `mode` is the default autoscaler."""
    return virtual_time.run(_live(files, way, mode))


async def _live(files: tuple[str, ...], way: str, mode: AutoscalerMode) -> dict[str, Seen]:
    world = Fleet(random.Random(0), NAMESPACE)
    answer = world.api.handle(
        Request("POST", "/api/v1/namespaces", {}, {}, msgspec.json.encode({"metadata": {"name": NAMESPACE}}))
    )
    assert answer.status == 201, answer.body
    crashes: list[str] = []
    config = ClusterConfig(pods=PodConfig(autoscaler=AutoscalerConfig(mode), creates_auth_secrets=True))
    clock = SimulatedClock(world.now)
    operator = OperatorUnderTest(InProcessTransport(world.api), clock, random.Random(0), crashes.append, config=config)
    controllers = asyncio.create_task(world.run_controllers())
    operator.start()
    await asyncio.sleep(1.0)
    answers = {file: _submit(world, file, way) for file in files}
    await asyncio.sleep(SETTLED_AFTER_S)
    everything = [obj for plural in CHILDREN for obj in _listed(world, plural)]
    events = _listed(world, "events.events.k8s.io")
    found = {
        file: replace(_seen(world, file, applied, everything, events), mode=mode) for file, applied in answers.items()
    }
    await operator.stop()
    controllers.cancel()
    assert not crashes, crashes
    return found


def documents_of(file: str) -> list[Json]:
    """All objects of that file, as written."""
    text = (GOLDEN / "specs" / f"{file}.yaml").read_text()
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def cluster_name(file: str) -> str:
    """The RayCluster's name."""
    return next(d["metadata"]["name"] for d in documents_of(file) if d["kind"] == "RayCluster")


def _submit(world: SimulatedKube, file: str, way: str) -> list[list[Any]]:
    """Send every object as kubectl does; kind, name, exit code and error of each."""
    answers = []
    for document in documents_of(file):
        kind, name = document["kind"], document["metadata"]["name"]
        path, body = RESOURCES[kind].format(NAMESPACE), msgspec.json.encode(document)
        if way == "apply":
            query = {"fieldManager": "kubectl", "fieldValidation": "Strict"}
            headers = {"content-type": "application/apply-patch+yaml"}
            answer = world.api.handle(Request("PATCH", f"{path}/{name}", query, headers, body))
        else:
            answer = world.api.handle(Request("POST", path, {"fieldValidation": "Strict"}, {}, body))
        is_taken = answer.status == 201
        assert is_taken or kind == "RayCluster", answer.body
        answers.append([kind, name, int(not is_taken), "" if is_taken else msgspec.json.decode(answer.body)["message"]])
    return answers


def _seen(
    world: SimulatedKube, file: str, applied: list[list[Any]], everything: list[Json], all_events: list[Json]
) -> Seen:
    name = cluster_name(file)
    cluster = world.cluster(name)
    events = [
        event for event in all_events if (event["regarding"]["kind"], event["regarding"]["name"]) == (CLUSTER, name)
    ]
    record = build_record(
        file,
        NAMESPACE,
        applied=applied,
        children=map(_as_stored, everything),
        clusters=[cluster] if cluster else [],
        events=({**event, "involvedObject": event["regarding"]} for event in events),
    )
    notes = "\n".join(event.get("note", "") for event in events)
    return Seen(record, raw_status=(cluster or {}).get("status", {}), notes=notes)


def _as_stored(stored: Json) -> Json:
    """With what a Kubernetes API server adds by itself, where the sandbox's does not."""
    if stored["kind"] == "Pod":
        tolerations = stored["spec"].get("tolerations", [])
        stored["spec"]["tolerations"] = [each for each in tolerations if each not in NODE_TROUBLE_TOLERATIONS]
    return with_server_defaults(stored)


def _listed(world: SimulatedKube, kind: str) -> list[Json]:
    plural, _, group = kind.partition(".")
    prefix = f"/apis/{group}/v1" if group else "/api/v1"
    answer = world.api.handle(Request("GET", f"{prefix}/namespaces/{NAMESPACE}/{plural}", {}, {}, b""))
    if answer.status in (404, 501):  # a kind the sandbox does not have holds no children either
        return []
    assert answer.status == 200, answer.body
    listed = msgspec.json.decode(answer.body)
    shared = {"kind": listed["kind"].removesuffix("List"), "apiVersion": listed["apiVersion"]}
    return [{**shared, **item} for item in listed["items"]]
