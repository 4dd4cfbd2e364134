"""The columns of `kubectl get`."""

from datetime import timedelta
from typing import Any

import pytest

from raytide_sandbox.apiserver.printing.podprinter import summary
from raytide_sandbox.apiserver.printing.printers import PRINTERS, age, duration
from raytide_sandbox.apiserver.printing.tables import json_path
from unit.sandbox.apiserver.embedded import NOW


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (7 * 3600 + 1800, "7h30m"),
        (8 * 3600, "8h"),
        (48 * 3600, "2d"),
        (3 * 86400 + 3600, "3d1h"),
        (8 * 86400, "8d"),
        (800 * 86400, "2y70d"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_ages() -> None:
    assert age((NOW - timedelta(seconds=5)).isoformat(), NOW) == "5s"
    assert age("2026-11-21T11:59:00Z", NOW) == "60s"
    assert age(None, NOW) == "<unknown>"
    assert age("yesterday", NOW) == "<unknown>"


def status(name: str = "c", *, ready: bool = False, restarts: int = 0, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state}


RUNNING = {"running": {"startedAt": "2026-11-21T11:00:00Z"}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
WAITING = {"waiting": {"reason": "PodInitializing"}}


def pod(status: dict[str, Any], *, init: int = 0, count: int = 1, **metadata: Any) -> dict[str, Any]:
    spec = {
        "containers": [{"name": f"c{number}"} for number in range(count)],
        "initContainers": [{"name": f"i{number}"} for number in range(init)],
    }
    return {"metadata": {"name": "p", **metadata}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("found", "ready", "reason"),
    [
        (pod({"phase": "Pending"}), "0/1", "Pending"),
        (pod({"phase": "Running", "containerStatuses": [status(ready=True, **RUNNING)]}), "1/1", "Running"),
        (pod({"phase": "Running", "containerStatuses": [status(**RUNNING)]}), "0/1", "Running"),
        (
            pod({"phase": "Running", "containerStatuses": [status(waiting={"reason": "CrashLoopBackOff"})]}),
            "0/1",
            "CrashLoopBackOff",
        ),
        (
            pod({"phase": "Pending", "containerStatuses": [status(waiting={"reason": "ErrImagePull"})]}),
            "0/1",
            "ErrImagePull",
        ),
        (pod({"phase": "Succeeded", "containerStatuses": [status(**DONE)]}), "0/1", "Completed"),
        (
            pod({"phase": "Failed", "containerStatuses": [status(terminated={"exitCode": 1, "reason": "Error"})]}),
            "0/1",
            "Error",
        ),
        (pod({"phase": "Failed", "containerStatuses": [status(terminated={"exitCode": 3})]}), "0/1", "ExitCode:3"),
        (
            pod({"phase": "Failed", "containerStatuses": [status(terminated={"exitCode": 137, "signal": 9})]}),
            "0/1",
            "Signal:9",
        ),
        (pod({"phase": "Failed", "reason": "Evicted"}), "0/1", "Evicted"),
        (
            pod({"phase": "Pending", "initContainerStatuses": [status(**RUNNING), status(**WAITING)]}, init=2),
            "0/1",
            "Init:0/2",
        ),
        (
            pod({"phase": "Pending", "initContainerStatuses": [status(**DONE), status(**RUNNING)]}, init=2),
            "0/1",
            "Init:1/2",
        ),
        (
            pod(
                {"phase": "Pending", "initContainerStatuses": [status(terminated={"exitCode": 1, "reason": "Error"})]},
                init=1,
            ),
            "0/1",
            "Init:Error",
        ),
        (
            pod(
                {"phase": "Pending", "initContainerStatuses": [status(waiting={"reason": "CrashLoopBackOff"})]}, init=1
            ),
            "0/1",
            "Init:CrashLoopBackOff",
        ),
        (
            pod(
                {
                    "phase": "Pending",
                    "initContainerStatuses": [status(**DONE)],
                    "containerStatuses": [status(**WAITING)],
                },
                init=1,
            ),
            "0/1",
            "PodInitializing",
        ),
        (
            pod(
                {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "False"}],
                    "containerStatuses": [status("a", ready=True, **RUNNING), status("b", **DONE)],
                },
                count=2,
            ),
            "1/2",
            "NotReady",
        ),
        (
            pod(
                {"phase": "Running", "containerStatuses": [status(ready=True, **RUNNING)]},
                deletionTimestamp="2026-11-21T12:00:00Z",
            ),
            "1/1",
            "Terminating",
        ),
        (
            pod(
                {"phase": "Succeeded", "containerStatuses": [status(**DONE)]}, deletionTimestamp="2026-11-21T12:00:00Z"
            ),
            "0/1",
            "Completed",
        ),
        (pod({"reason": "NodeLost"}, deletionTimestamp="2026-11-21T12:00:00Z"), "0/1", "Unknown"),
        (
            pod({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "0/1",
            "SchedulingGated",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_status_column_of_a_pod(found: dict[str, Any], ready: str, reason: str) -> None:
    shown = summary(found)
    assert (f"{shown.ready}/{shown.total}", shown.reason) == (ready, reason)


def test_the_restarts_column_has_the_time_since_the_last_restart() -> None:
    restarted = status(ready=True, restarts=3, **RUNNING)
    restarted["lastState"] = {"terminated": {"exitCode": 1, "finishedAt": "2026-11-21T11:59:50Z"}}
    row = PRINTERS["pods"].row(pod({"phase": "Running", "containerStatuses": [restarted], "podIP": "10.0.0.1"}), NOW)
    assert row[:4] == ["p", "1/1", "Running", "3 (10s ago)"]
    assert row[5] == "10.0.0.1"


def test_the_columns_of_a_service_have_its_ports() -> None:
    spec = {"clusterIP": "10.96.0.1", "ports": [{"port": 80}, {"port": 81, "nodePort": 30001, "protocol": "UDP"}]}
    row = PRINTERS["services"].row({"metadata": {"name": "s"}, "spec": spec}, NOW)
    assert row[:5] == ["s", "ClusterIP", "10.96.0.1", "<none>", "80/TCP,81:30001/UDP"]


def test_every_row_has_a_cell_per_column() -> None:
    for resource, printer in PRINTERS.items():
        found = printer.row({"metadata": {"name": "x"}, "spec": {}, "status": {}}, NOW)
        assert len(found) == len(printer.columns), resource


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.size", [3]),
        ("{.spec.size}", [3]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        ('.status.conditions[?(@.type == "Ready")].reason', ["Fine"]),
        (".status.conditions[0].type", ["Ready"]),
        (".metadata.labels['a.b/c']", ["d"]),
        (".spec.nothing.here", []),
    ],
)
def test_printer_columns_read_simple_paths(path: str, found: list[Any]) -> None:
    conditions = [{"type": "Ready", "status": "True", "reason": "Fine"}, {"type": "Other", "status": "False"}]
    obj = {"spec": {"size": 3}, "status": {"conditions": conditions}, "metadata": {"labels": {"a.b/c": "d"}}}
    assert json_path(path, obj) == found
