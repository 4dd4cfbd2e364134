"""Questions about writes: preconditions, stored results, and the messages of rejections."""

from typing import Any

from integration.probe.client import JSON_PATCH, MERGE, STRATEGIC, Answer, Client, cluster, pod
from integration.probe.transcript import Transcript

Json = dict[str, Any]


def _essential(body: Json) -> Json:
    """Identity and wishes, without what schedulers and controllers write meanwhile."""
    kept = ("name", "namespace", "labels", "annotations", "finalizers", "generation")
    return {
        "metadata": {key: body["metadata"][key] for key in kept if key in body["metadata"]},
        **{key: body[key] for key in ("spec", "data") if key in body},
    }


def _status_of(body: Json) -> Any:
    return body.get("status")


def _read(client: Client, path: str) -> Json:
    return client.get(path).body


def _with(obj: Json, **metadata: Any) -> Json:
    changed = {**obj["metadata"], **metadata}
    return {**obj, "metadata": {key: value for key, value in changed.items() if value is not None}}


def what_guards_a_status_write(ask: Transcript) -> None:
    client = ask.client
    client.new_cluster("a")
    path = f"{client.clusters}/a"

    def patch(status: Json, **metadata: str) -> Answer:
        return client.patch(f"{path}/status", {"metadata": metadata, "status": status})

    ask.note("a patch with a wrong uid", patch({"x": 1}, uid="other"), only=_status_of)
    ask.note("a patch with a stale version", patch({"x": 2}, resourceVersion="1"))
    version = client.get(path).metadata["resourceVersion"]
    ask.note("a patch with the right version", patch({"x": 3}, resourceVersion=version), only=_status_of)
    ask.note("the same once more", patch({"x": 4}, resourceVersion=version))
    test = {"op": "test", "path": "/metadata/uid", "value": "other"}
    add = {"op": "add", "path": "/status", "value": {"x": 5}}
    ask.note("a JSON patch that tests the uid", client.patch(f"{path}/status", [test, add], JSON_PATCH))
    found = {**_read(client, path), "status": {"x": 6}}
    ask.note("a PUT of another uid", client.call("PUT", f"{path}/status", _with(found, uid="other")))
    ask.note("a PUT without a version", client.call("PUT", f"{path}/status", _with(found, resourceVersion=None)))
    ask.note("what is there in the end", client.get(path), only=_status_of)
    ask.note("no object of that name", client.patch(f"{client.clusters}/nobody/status", {"status": {"x": 1}}))


def what_guards_other_writes(ask: Transcript) -> None:
    client = ask.client
    client.new_cluster("a")
    client.new_pod("p")
    client.post(f"{client.core}/services", _service("s"))
    for kind, path in (("cluster", client.clusters), ("pod", client.pods), ("service", f"{client.core}/services")):
        one = f"{path}/{'s' if kind == 'service' else kind[0]}" if kind != "cluster" else f"{path}/a"
        labels = {"labels": {"x": "y"}}
        ask.note(f"a patch of a {kind} with a wrong uid", client.patch(one, {"metadata": {"uid": "other", **labels}}))
        stale = {"metadata": {"resourceVersion": "1", **labels}}
        ask.note(f"a patch of a {kind} with a stale version", client.patch(one, stale))
        ask.note(f"a PUT of a {kind} of another uid", client.call("PUT", one, _with(_read(client, one), uid="other")))
    ask.note("a PUT of a cluster without a version", client.call("PUT", f"{client.clusters}/a", cluster("a")))
    status = {"metadata": {"uid": "other"}, "status": {"phase": "Running"}}
    ask.note("a patch of a pod's status with a wrong uid", client.patch(f"{client.pods}/p/status", status))


def what_a_deletion_answers(ask: Transcript) -> None:
    client = ask.client
    client.new_cluster("a")
    client.new_pod("p")
    client.post(f"{client.core}/services", _service("s"))
    for kind, path in (("cluster", f"{client.clusters}/a"), ("pod", f"{client.pods}/p")):
        for field in ("uid", "resourceVersion"):
            answer = client.delete(path, {"preconditions": {field: "1"}})
            ask.note(f"of a {kind} with a wrong {field}", answer)
    ask.note("of a cluster", client.delete(f"{client.clusters}/a"))
    ask.note("of a cluster that is gone", client.delete(f"{client.clusters}/a"))
    ask.note("of a pod without a node", client.delete(f"{client.pods}/p"), only=_essential)
    ask.note("of a service", client.delete(f"{client.core}/services/s"), only=_essential)
    client.new_cluster("f", finalizers=["example.com/wait"])
    ask.note("of a cluster with a finalizer", client.delete(f"{client.clusters}/f"), only=_essential)
    late = {"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}}
    ask.note("another finalizer afterwards", client.patch(f"{client.clusters}/f", late))
    ask.note("a wrong policy", client.delete(f"{client.clusters}/f", {"propagationPolicy": "Sideways"}))
    client.patch(f"{client.clusters}/f", {"metadata": {"finalizers": None}})


def responses_for_a_name_in_use(ask: Transcript) -> None:
    client = ask.client
    event = _event("e")
    events = f"/apis/events.k8s.io/v1/namespaces/{client.namespace}/events"
    event["regarding"]["namespace"] = client.namespace
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": client.namespace}}
    for path, obj in (
        (client.clusters, cluster("a")),
        (client.pods, pod("a")),
        (f"{client.core}/services", _service("a")),
        (events, event),
        ("/api/v1/namespaces", namespace),
    ):
        client.post(path, obj)
        ask.note(obj["kind"], client.post(path, obj))


def what_a_pod_becomes(ask: Transcript) -> None:
    client = ask.client
    smallest = pod("small")
    del smallest["spec"]["schedulerName"]
    ask.note("the smallest", client.post(client.pods, smallest))
    ask.note("one like a head pod", client.post(client.pods, _ray_pod("large")))


def what_other_objects_become(ask: Transcript) -> None:
    client = ask.client
    owner = client.new_cluster("owner").metadata["uid"]
    reference = {"apiVersion": "probe.raytide.io/v1", "kind": "RayCluster", "name": "owner", "uid": owner}
    reference |= {"controller": True, "blockOwnerDeletion": True}
    ask.note("a cluster", client.new_cluster("b", {"rayVersion": "1", "groups": [{"name": "g"}]}))
    ask.note("a service", client.post(f"{client.core}/services", _service("s", ownerReferences=[reference])))
    headless = _service("headless")
    headless["spec"] |= {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"a": "b"}}
    ask.note("a headless service", client.post(f"{client.core}/services", headless))
    for kind in ("NodePort", "LoadBalancer"):
        service = _service(kind.lower())
        service["spec"]["type"] = kind
        ask.note(f"a service of type {kind}", client.post(f"{client.core}/services", service))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    ask.note("a secret", client.post(f"{client.core}/secrets", secret))
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}}
    claim["spec"] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    ask.note("a claim", client.post(f"{client.core}/persistentvolumeclaims", claim))
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}
    lease["spec"] = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    ask.note("a lease", client.post(_leases(client), lease))
    unnamed = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "m"}, "spec": {}}
    ask.note("a PUT of a lease that is not there", client.call("PUT", f"{_leases(client)}/m", unnamed))


def what_is_wrong_with_metadata(ask: Transcript) -> None:
    client = ask.client
    wrong: dict[str, Json] = {
        "a name": {"name": "Bad_Name!"},
        "a long name": {"name": "x" * 254},
        "a label's name": {"labels": {"a b": "c"}},
        "a label's value": {"labels": {"a": "b c"}},
        "a finalizer with a domain": {"finalizers": ["example.com/fine"]},
        "a long label": {"labels": {"a": "b" * 64}},
        "an annotation's name": {"annotations": {"a b": "c"}},
        "a finalizer without a domain": {"finalizers": ["bad"]},
        "an owner without a uid": {"ownerReferences": [_reference(uid="")]},
        "two controllers": {"ownerReferences": [_reference(uid="a"), _reference(uid="b", name="other")]},
        "a version": {"resourceVersion": "5"},
        "another namespace": {"namespace": "other"},
    }
    for what, metadata in wrong.items():
        for path, make in ((client.pods, pod), (client.clusters, cluster)):
            obj = make("wrong")
            obj["metadata"] |= metadata
            ask.note(f"{what} of a {obj['kind']}", client.post(path, obj), only=lambda _: "taken")
            client.patch(f"{path}/wrong", {"metadata": {"finalizers": None}})
            client.delete(f"{path}/wrong", {"gracePeriodSeconds": 0})
    ask.note("no name", client.post(client.pods, {**pod("x"), "metadata": {}}))


def what_is_wrong_with_a_pod(ask: Transcript) -> None:
    client = ask.client
    container = {"name": "c", "image": "i"}
    wrong: dict[str, Json] = {
        "no containers": {},
        "no image": {"containers": [{"name": "c"}]},
        "no container's name": {"containers": [{"image": "i"}]},
        "a container's name twice": {"containers": [container, container]},
        "a container's name in capitals": {"containers": [{**container, "name": "C"}]},
        "a port of no number": {"containers": [{**container, "ports": [{"containerPort": 70000}]}]},
        "a variable without a name": {"containers": [{**container, "env": [{"value": "v"}]}]},
        "a mount of no volume": {"containers": [{**container, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
        "a restart policy": {"containers": [container], "restartPolicy": "Sometimes"},
        "an unknown service account": {"containers": [container], "serviceAccountName": "nobody"},
        "a quantity of no unit": {"containers": [{**container, "resources": {"limits": {"cpu": "lots"}}}]},
        "requests above limits": {
            "containers": [{**container, "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]
        },
    }
    for what, spec in wrong.items():
        ask.note(what, client.post(client.pods, {**pod("wrong"), "spec": spec}), only=lambda _: "taken")
    client.new_pod("fixed")
    command = {"spec": {"containers": [{"name": "c", "image": "img", "command": ["other"]}]}}
    ask.note("another command", client.patch(f"{client.pods}/fixed", command, STRATEGIC))


def what_patches_do(ask: Transcript) -> None:
    client = ask.client
    client.new_cluster("a")
    path = f"{client.clusters}/a"
    missing = [{"op": "remove", "path": "/spec/nothing/here"}]
    ask.note("a JSON patch of what is not there", client.patch(path, missing, JSON_PATCH))
    ask.note("a JSON patch that is no list", client.patch(path, {"a": 1}, JSON_PATCH))
    ask.note("a merge patch that is no JSON", client.patch(path, "{", MERGE))
    ask.note("another content type", client.patch(path, {}, "application/json"))
    ask.note("a strategic patch of a custom kind", client.patch(path, {}, STRATEGIC))
    ask.note("another name", client.patch(path, {"metadata": {"name": "b"}}))
    ask.note("no object of that name", client.patch(f"{client.clusters}/nobody", {}))
    ask.note("what the schema forbids", client.patch(path, {"spec": {"replicas": -1}}))
    service = _service("s")
    service["spec"]["ports"] = [{"name": f"p{port}", "port": port} for port in (80, 81, 82)]
    client.post(f"{client.core}/services", service)
    for ports in ([82, 83], [84], [81, 85, 80], [86, 82, 87]):
        change = {"spec": {"ports": [{"name": f"p{port}", "port": port} for port in ports]}}
        answer = client.patch(f"{client.core}/services/s", change, STRATEGIC)
        ask.note(f"ports {ports} into a list", answer, only=lambda body: [p["port"] for p in body["spec"]["ports"]])


def what_events_are_taken(ask: Transcript) -> None:
    client = ask.client
    path = f"/apis/events.k8s.io/v1/namespaces/{client.namespace}/events"
    changes: dict[str, Json] = {
        "a good one": {},
        "no time": {"eventTime": None},
        "no action": {"action": ""},
        "no controller": {"reportingController": ""},
        "a controller without a domain": {"reportingController": "raytide"},
        "no instance": {"reportingInstance": ""},
        "no reason": {"reason": ""},
        "a note of 1024": {"note": "x" * 1024},
        "a note of 1025": {"note": "x" * 1025},
        "another type": {"type": "Odd"},
        "a long instance": {"reportingInstance": "i" * 129},
        "a long reason": {"reason": "r" * 129},
        "a long action": {"action": "a" * 129},
        "an object of another namespace": {"regarding": {"kind": "Pod", "name": "p", "namespace": "other"}},
        "an object of no namespace": {"regarding": {"kind": "Node", "name": "n"}},
        "a series of one": {"series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}},
    }
    for number, (what, change) in enumerate(changes.items()):
        event = _event(f"e{number}")
        event["regarding"]["namespace"] = client.namespace
        ask.note(what, client.post(path, {**event, **change}), only=lambda _: "taken")
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:05.000000Z"}}
    ask.note("a series begins", client.patch(f"{path}/e0", series), only=lambda body: body["series"])
    series["series"]["count"] = 3
    ask.note("a series goes on", client.patch(f"{path}/e0", series), only=lambda body: body["series"])
    ask.note("another note", client.patch(f"{path}/e0", {"note": "other"}), only=lambda body: body["note"])


# --- objects ---------------------------------------------------------------------------------------------------------


def _leases(client: Client) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{client.namespace}/leases"


def _service(name: str, **metadata: Any) -> Json:
    spec = {"ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, **metadata}, "spec": spec}


def _reference(**fields: Any) -> Json:
    return {"apiVersion": "probe.raytide.io/v1", "kind": "RayCluster", "name": "own", "controller": True, **fields}


def _event(name: str) -> Json:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "regarding": {"kind": "Pod", "name": "p"},
        "reason": "New",
        "note": "modern",
        "type": "Normal",
        "action": "Acting",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "raytide.io/probe",
        "reportingInstance": "probe-1",
    }


def _ray_pod(name: str) -> Json:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 5}
    container = {
        "name": "ray-head",
        "image": "rayproject/ray:2.52.0",
        "command": ["/bin/bash"],
        "resources": {"limits": {"cpu": "1", "memory": "2Gi"}},
        "ports": [{"containerPort": 6379, "name": "gcs"}],
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "livenessProbe": probe,
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    spec = {"containers": [container], "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
    spec["initContainers"] = [{"name": "wait", "image": "img:latest"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"a": "b"}}, "spec": spec}
