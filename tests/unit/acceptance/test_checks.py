"""The checks of the acceptance scenarios detect violations: constructed audit logs are read and checked."""

from typing import Any

import msgspec
import pytest

from acceptance.audit import Created, Doomed, Held, Order, Seen, _Event, steps
from acceptance.checks import (
    alive_at_the_end,
    longest_without_a_leader_s,
    most_at_once,
    shortest_between_s,
    terms,
    too_many_or_too_few,
    writes_without_the_lease,
)

NOTHING_SEEN = Seen()
USERS = {"sa:a": "uid-a", "sa:b": "uid-b"}


class Log:
    """An audit log as an API server writes it; each line one second and one version after the last."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, verb: str, resource: str, obj: dict[str, Any], *, user: str = "sa:a", code: int = 200) -> "Log":
        number = len(self.lines) + 1
        resource, _, subresource = resource.partition("/")
        meta = {"namespace": "n", "resourceVersion": str(number), **obj.get("metadata", {})}
        event = {
            "verb": verb,
            "stage": "ResponseComplete",
            "requestReceivedTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}.000000Z",
            "stageTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}.100000Z",
            "user": {"username": user, "groups": []},
            "objectRef": {"resource": resource, "subresource": subresource, "namespace": "n"},
            "responseStatus": {"code": code},
            "responseObject": {**obj, "metadata": meta},
        }
        self.lines.append(msgspec.json.encode(event))
        return self

    def order(self, replicas: int, *victims: str, ended: bool = False) -> "Log":
        spec = {"groupName": "g", "replicas": replicas, "scaleStrategy": {"workersToDelete": list(victims)}}
        meta = {"name": "c", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if ended else {})}
        return self.write("patch", "rayclusters", {"metadata": meta, "spec": {"workerGroupSpecs": [spec]}}, user="me")

    def created(self, *names: str, group: str = "g", user: str = "sa:a", code: int = 201) -> "Log":
        for name in names:
            labels = {"ray.io/cluster": "c", "ray.io/group": group}
            self.write("create", "pods", {"metadata": {"name": name, "labels": labels}}, user=user, code=code)
        return self

    def doomed(self, *names: str, user: str = "sa:a") -> "Log":
        for name in names:
            self.write("delete", "pods", {"metadata": {"name": name}}, user=user)
        return self

    def held(self, holder: str | None) -> "Log":
        lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": holder}}
        return self.write("update", "leases", lease, user="any")

    def pause(self, seconds: int) -> "Log":
        for _ in range(seconds):
            self.write("create", "configmaps", {})
        return self

    def read(self, seen: Seen = NOTHING_SEEN) -> list[Any]:
        return steps((msgspec.json.decode(line, type=_Event) for line in self.lines), seen)


def violations_of(log: Log) -> list[str]:
    return too_many_or_too_few(log.read())


def test_a_log_is_read_in_the_order_of_etcd():
    log = Log().order(1).created("p").doomed("p").held("uid-a")
    log.lines.reverse()
    assert [type(step) for step in log.read()] == [Order, Created, Doomed, Held]


def test_what_was_rejected_or_has_no_answer_yet_did_not_happen():
    assert Log().created("p", code=409).read() == []
    started = Log().created("p")
    started.lines = [line.replace(b"ResponseComplete", b"Panic") for line in started.lines]
    assert started.read() == []


def test_a_write_without_a_response_counts_if_the_watch_showed_the_pod():
    log = Log().order(1).created("p").doomed("p")
    log.lines[1:] = [_unanswered(line, "p") for line in log.lines[1:]]
    assert [type(step) for step in log.read()] == [Order]
    seen = Seen({"n/p": 7}, {"n/p": 9})
    assert [(type(step), step.version) for step in log.read(seen)] == [(Order, 1), (Created, 7), (Doomed, 9)]
    assert alive_at_the_end(log.read(Seen({"n/p": 7}))) == {("n/c", "g"): 1}


def _unanswered(line: bytes, name: str) -> bytes:
    event = msgspec.json.decode(line)
    event["requestObject"] = event["responseObject"]
    event["responseObject"] = {"kind": "Status", "metadata": {}}
    event["objectRef"]["name"] = name
    event["responseStatus"] = {"code": 504}
    return msgspec.json.encode(event)


def test_a_json_patch_in_the_audit_log_is_no_object():
    log = Log().order(1)
    event = msgspec.json.decode(log.lines[0])
    event["requestObject"] = [{"op": "test", "path": "/metadata/uid", "value": "u"}]
    log.lines[0] = msgspec.json.encode(event)
    assert [type(step) for step in log.read()] == [Order]


def test_the_most_pods_at_once_excludes_terminating_pods():
    log = Log().order(3).created("a", "b").doomed("a").created("c", "d").doomed("b", "c", "d").created("e")
    assert most_at_once(log.read(), "g") == 3
    assert most_at_once(log.read(), "another") == 0


def test_the_shortest_time_between_two_orders_of_one_user():
    log = Log().order(1).pause(20).order(2).pause(5).order(3)
    assert shortest_between_s(log.read(), "me") == pytest.approx(6)
    assert shortest_between_s(log.read(), "another") == float("inf")


CLEAN = {
    "as many as wanted": Log().order(2).created("a", "b"),
    "scaled up and down by number": Log()
    .order(1)
    .created("a")
    .order(3)
    .created("b", "c")
    .order(1)
    .pause(9)
    .doomed("b", "c"),
    "a named one goes, whatever the number": Log()
    .order(2)
    .created("a", "b")
    .order(2, "a")
    .pause(9)
    .doomed("a")
    .created("d"),
    "a dying one is replaced": Log().order(1).created("a").order(1, "a").doomed("a").created("b"),
    "a create that was decided right before the order shrank": Log().order(2).created("a").order(1).created("b"),
    "everything goes with its cluster": Log().order(1).created("a").order(1, ended=True).pause(9).doomed("a"),
    "the kubelet's second delete": Log().order(2).created("a", "b").order(1).doomed("a").doomed("a"),
    "one head": Log().order(0).created("h", group="headgroup"),
    "a pod of no job": Log().doomed("external"),
}


@pytest.mark.parametrize("log", CLEAN.values(), ids=CLEAN)
def test_a_valid_history_has_no_violation(log):
    assert violations_of(log) == []


INVALID = {
    "one pod too many": (Log().order(2).created("a", "b", "c"), "n/c is number 3 of g of n/c, wanted 2"),
    "a pod long after the order shrank": (Log().order(2).created("a").order(1).pause(9).created("b"), "number 2"),
    "a replacement before the old one goes": (Log().order(1).created("a").order(1, "a").created("b"), "number 2"),
    "two heads": (Log().order(0).created("h", "i", group="headgroup"), "number 2 of headgroup"),
    "a pod of a cluster that was not ordered": (Log().created("a"), "wanted 0"),
    "a deletion that was not ordered": (
        Log().order(2).created("a", "b").doomed("a"),
        "no spec or autoscaler had named it",
    ),
    "one deletion too many": (
        Log().order(2).created("a", "b").order(1).pause(9).doomed("a", "b"),
        "n/b was deleted, one of 1",
    ),
    "another than the named one": (Log().order(1).created("a").order(1, "x").doomed("a"), "n/a was deleted"),
    "a head": (Log().order(0).created("h", group="headgroup").doomed("h"), "n/h was deleted"),
}


@pytest.mark.parametrize(("log", "message"), INVALID.values(), ids=INVALID)
def test_an_invalid_history_is_detected(log, message):
    (violation,) = violations_of(log)
    assert message in violation


def test_the_remaining_pods_can_be_compared_with_the_api():
    log = Log().order(2).created("a", "b", "h").doomed("a").created("h2", group="headgroup")
    assert alive_at_the_end(log.read()) == {("n/c", "g"): 2, ("n/c", "headgroup"): 1}


def leaderless(log: Log) -> list[str]:
    return writes_without_the_lease(log.read(), lease="n/l", users=USERS)


def test_the_holder_may_write_and_so_may_all_that_are_no_operators():
    log = Log().held("uid-a").created("p").held("uid-b").doomed("p", user="sa:b").created("q", user="kubelet").order(1)
    assert leaderless(log) == []


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (Log().held("uid-a").created("p", user="sa:b"), "sa:b wrote create pods n/p while uid-a held"),
        (Log().held("uid-a").held("uid-b").doomed("p"), "sa:a wrote delete pods n/p while uid-b held"),
        (Log().held("uid-a").held("").created("p"), "while no replica held"),
        (Log().held("uid-a").held(None).created("p"), "while no replica held"),
        (Log().created("p"), "while no replica held"),
        (Log().held("uid-b").write("patch", "rayclusters/status", {}), "patch rayclusters/status"),
        (Log().held("uid-b").write("create", "services", {"metadata": {"name": "s"}}), "create services n/s"),
    ],
    ids=[
        "before it has the lease",
        "after another took it",
        "after it let go of it",
        "after it let go of it with null",
        "without any lease",
        "a status",
        "a service",
    ],
)
def test_a_write_without_the_lease_is_a_violation(log, message):
    (violation,) = leaderless(log)
    assert message in violation


def test_terms_and_the_time_between_them_are_counted():
    log = Log().held("uid-a").held("uid-a").pause(5).held("uid-b").held("").held("uid-a")
    assert [term.holder for term in terms(log.read(), "n/l")] == ["uid-a", "uid-b", "", "uid-a"]
    assert longest_without_a_leader_s(log.read(), "n/l") == pytest.approx(6.0)
