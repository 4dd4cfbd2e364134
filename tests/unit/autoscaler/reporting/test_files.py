"""Metrics under Ray's names, events in Ray's format, and logs whose errors do not stop the loop."""

import logging
from datetime import UTC, datetime

import msgspec
import pytest
from prometheus_client import generate_latest

from raytide.autoscaler.model import Demand, Drained, GcsState, Instance, NodeType, Request, Status, amounts_of
from raytide.autoscaler.reporting import monitor_log
from raytide.autoscaler.reporting.event_log import EventLog
from raytide.autoscaler.reporting.metrics import SidecarMetrics
from raytide.autoscaler.reporting.tick import Tick
from raytide.autoscaler.sidecar.settings import read_settings
from raytide.autoscaler.state.snapshot import ClusterEvent, Level, ReconcileResult

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOGS = read_settings({}).logs


def test_nodes_and_resources_are_counted_as_ray_counts_them():
    metrics = SidecarMetrics()
    metrics.session = "s"
    types = (NodeType("headgroup"), NodeType("cpu", resources=amounts_of({"CPU": 2.0})))
    statuses = [Status.RAY_RUNNING, Status.RAY_RUNNING, Status.REQUESTED, Status.TERMINATING]
    instances = tuple(Instance(f"w{n}", "cpu", status) for n, status in enumerate(statuses))
    state = GcsState(tasks=(Demand(Request(()), 7),))
    metrics.update(Tick(0.1, ReconcileResult(types=types, instances=instances), state))
    text = generate_latest(metrics.registry).decode()
    for line in (
        'autoscaler_active_nodes{NodeType="cpu",SessionName="s"} 2.0',
        'autoscaler_pending_nodes{NodeType="cpu",SessionName="s"} 1.0',
        'autoscaler_recently_failed_nodes{NodeType="cpu",SessionName="s"} 1.0',
        'autoscaler_active_nodes{NodeType="headgroup",SessionName="s"} 0.0',
        'autoscaler_cluster_resources{SessionName="s",resource="CPU"} 4.0',
        'autoscaler_pending_resources{SessionName="s",resource="CPU"} 2.0',
        'raytide_autoscaler_demand{SessionName="s",kind="tasks"} 7.0',
    ):
        assert line in text


def test_drains_and_broken_turns_are_counted():
    metrics = SidecarMetrics()
    metrics.update(Tick(0.1, ReconcileResult(), answers={"a": Drained(is_accepted=True), "b": None}))
    metrics.update(Tick(0.1, skipped="bug"))
    text = generate_latest(metrics.registry).decode()
    assert 'autoscaler_stopped_nodes_total{SessionName=""} 1.0' in text
    assert 'autoscaler_drain_node_exceptions_total{SessionName=""} 1.0' in text
    assert 'autoscaler_update_loop_exceptions_total{SessionName=""} 1.0' in text


@pytest.mark.rule("AS §5.4")
def test_an_event_is_a_line_that_has_what_rays_log_monitor_reads(tmp_path):
    events = EventLog(tmp_path, LOGS, now=lambda: NOW)
    events.write([ClusterEvent(Level.WARNING, "no room")])
    events.close()
    (line,) = (tmp_path / "events" / "event_AUTOSCALER.log").read_text().splitlines()
    event = msgspec.json.decode(line)
    assert (event["severity"], event["message"], event["source_type"]) == ("WARNING", "no room", "AUTOSCALER")
    assert len(event["event_id"]) == 36
    assert event["timestamp"] == str(int(NOW.timestamp()))  # a string as in Ray: the dashboard sorts by it


def test_a_folder_that_is_not_there_is_reported_once_and_never_made(tmp_path, caplog):
    missing = tmp_path / "session_latest" / "logs"
    assert monitor_log.write_to(missing, LOGS) is None
    assert len(caplog.records) == 1
    assert not missing.parent.exists()


def test_events_are_dropped_if_the_log_folder_does_not_exist(tmp_path):
    events = EventLog(tmp_path / "x" / "logs", LOGS, now=lambda: NOW)
    events.write([ClusterEvent(Level.INFO, "anything")])
    events.close()
    assert list(tmp_path.iterdir()) == []


def test_the_variable_for_scheduler_events_disables_the_event_file(tmp_path):
    EventLog(tmp_path, read_settings({"RAY_SCHEDULER_EVENTS": "0"}).logs, now=lambda: NOW).write(
        [ClusterEvent(Level.INFO, "anything")]
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rule("FD:SEC3-6")
def test_text_of_a_tenant_forges_no_line_of_the_sidecars_log(tmp_path, capsys):
    forged = "GPU\x1b[2J\n2026-01-01 00:00:00,000\tINFO forged\u202e\u2028"
    before, root = logging.getLogger().handlers[:], logging.getLogger()
    monitor_log.install(LOGS)
    try:
        handler = monitor_log.write_to(tmp_path, LOGS)
        logging.getLogger("raytide.x").info("group %s", forged)
        logging.getLogger("raytide.x").error("unexpected error", exc_info=ValueError(forged))
        handler.close()
    finally:
        root.handlers[:] = before
    out, err = capsys.readouterr()
    for text in (out + err, (tmp_path / "monitor.log").read_text()):
        records = [line for line in text.splitlines() if not line.startswith("  ")]
        assert [line.split("\t")[1].split()[0] for line in records] == ["INFO", "ERROR"]
        assert r"group GPU\x1b[2J\n2026-01-01 00:00:00,000\tINFO forged\u202e\u2028" in records[0]
        assert not set("\x1b\u202e\u2028") & set(text)


@pytest.mark.rule("FD:SEC3-6")
def test_text_of_a_tenant_forges_no_line_of_a_driver(tmp_path):
    events = EventLog(tmp_path, LOGS, now=lambda: NOW)
    events.write([ClusterEvent(Level.WARNING, "No node for {x\x1b[2J\n(autoscaler +1s) forged\u202e: 1}")])
    events.close()
    event = msgspec.json.decode((tmp_path / "events" / "event_AUTOSCALER.log").read_bytes())
    assert event["message"] == r"No node for {x\x1b[2J\n(autoscaler +1s) forged\u202e: 1}"


@pytest.mark.rule("FD:SEC3-6")
def test_the_directory_that_the_gcs_reports_forges_no_line(tmp_path, capsys):
    handler = monitor_log.QuietFile(tmp_path / "x\nforged\x1b[2J", LOGS)
    handler.stream.close()
    handler.stream = open("/dev/full", "w")  # noqa: PTH123, SIM115 - as below
    handler.handle(logging.LogRecord("x", logging.INFO, "", 0, "a line", None, None))
    err = capsys.readouterr().err
    assert err.splitlines() == [err.rstrip("\n")]
    assert r"x\nforged\x1b[2J" in err
    with pytest.raises(OSError, match="No space"):
        handler.close()


def test_a_full_disk_is_reported_once(tmp_path, capsys):
    handler = monitor_log.QuietFile(tmp_path / "monitor.log", LOGS)
    handler.stream.close()
    handler.stream = open("/dev/full", "w")  # noqa: PTH123, SIM115 - a full disk; the handler closes it
    for _ in range(3):
        handler.handle(logging.LogRecord("x", logging.INFO, "", 0, "a line", None, None))
    assert capsys.readouterr().err.count("cannot write") == 1
    with pytest.raises(OSError, match="No space"):
        handler.close()
