"""`raytide ui`: arguments, the feed of the page, and its HTTP API with its limits."""

import asyncio
import json
import os
import re
import socket
import sys
import time
from contextlib import asynccontextmanager
from importlib.resources import files

import msgspec
import pytest
from click.testing import CliRunner

import machine_speed
import raytide.cli
from raytide.api.config import DEFAULT_GPUS
from raytide.cli.lane_watch import LaneWatch, Problem
from raytide.cli.ui import app as ui_app
from raytide.cli.ui.access import View
from raytide.cli.ui.capacity_watch import CapacityWatch
from raytide.cli.ui.feed import HEARTBEAT_S, MAX_QUEUED, MAX_READERS, Feed, TooManyReadersError
from raytide.cli.ui.feeds import Feeds
from raytide.cli.ui.guard import HEADERS
from raytide.cli.ui.serve import follow, open_browser
from raytide.explain.history import MAX_BYTES, WINDOW_S
from raytide.explain.overview import GroupSize, Resized
from raytide.kube.client import Client
from raytide.runtime.clock import Clock
from raytide_sandbox.apiserver.routes import Request
from support.deadlines import PATIENCE
from support.explained import HOSTILE
from support.faults.types import Answer
from support.stored_workloads import PATHS, api_with, cluster_object, job_object, pod_object, short_of_cpu
from support.ui_site import AUTHORIZED, NEW, NEW_CLUSTER, NOON, START, TOKEN, Site, after, lane, node

from simulation.in_process_transport import InProcessTransport

pytestmark = pytest.mark.rule("SC:S21")

MARKUP = "<img src=x onerror=alert(1)>"


# --- arguments -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-n", "a", "-A"), "--namespace cannot be combined with --all-namespaces"),
        (("-n", "a/b"), "is not a name in Kubernetes"),
        (("--port", "70000"), "Invalid value for '--port'"),
        (("--max-load", "cpu"), "--max-load: "),
        (("demo",), "unexpected extra argument"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(words, message):
    result = CliRunner().invoke(raytide.cli.main, ["ui", *words])
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_without_a_cluster_it_ends_with_one_line(tmp_path):
    result = CliRunner().invoke(raytide.cli.main, ["ui", "--port", "0", "--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert re.fullmatch(r"Error: .*none.*\n", result.output)


@pytest.fixture
def kubeconfig(tmp_path):
    """That of a cluster that does not answer."""
    file = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    file.write_text(json.dumps(config))
    return file


@pytest.mark.parametrize("words", [(), ("--auth", "kubernetes")], ids=["printed token", "tokens of callers"])
def test_a_port_in_use_is_one_line_that_names_it(kubeconfig, words):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(
            raytide.cli.main, ["ui", "--port", str(port), "--kubeconfig", str(kubeconfig), *words]
        )
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: 127.0.0.1:{port}: ")
    assert result.output.endswith("--port takes another port, 0 a free one\n")


@pytest.mark.parametrize("words", [(), ("--open",)])
async def test_ended_by_sigterm_it_leaves_no_file(kubeconfig, tmp_path, words):
    folder = tmp_path / "temporary"
    folder.mkdir()
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\ntouch {tmp_path}/opened\n")
    browser.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "raytide", "ui", "--port", "0", "--kubeconfig", kubeconfig, *words),
        env={**os.environ, "TMPDIR": str(folder), "BROWSER": str(browser)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert (await asyncio.wait_for(process.stdout.readline(), 30 * PATIENCE)).startswith(b"showing ")
        if words:
            await until((tmp_path / "opened").exists)
        else:
            assert list(folder.iterdir()) == []
        process.terminate()
        _, errors = await asyncio.wait_for(process.communicate(), 30 * PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, list(folder.iterdir())) == (143, [])
    assert b"Traceback" not in errors


def test_the_browser_gets_the_address_in_a_file_and_not_as_an_argument(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    open_browser("http://127.0.0.1:8250/#token=secret&x", tmp_path)
    (file,) = tmp_path.iterdir()
    assert opened == [file.as_uri()]
    assert "secret" not in opened[0]
    assert "url=http://127.0.0.1:8250/#token=secret&amp;x" in file.read_text()


# --- the page --------------------------------------------------------------------------------------------------------------

STATIC = {file.name: file.read_text() for file in files("raytide.cli.ui").joinpath("static").iterdir()}


@pytest.mark.rule("PF:PAGE")
def test_the_page_is_small():
    assert set(STATIC) == {name for name, _ in ui_app.PAGES.values()}
    assert sum(len(text.encode()) for text in STATIC.values()) <= 150_000


def test_the_page_fetches_nothing_from_elsewhere():
    for name, text in STATIC.items():
        addresses = set(re.findall(r"https?://[\w./-]+", text)) - {"http://www.w3.org/2000/svg"}
        assert addresses == set(), name


@pytest.mark.parametrize(
    "sink", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"]
)
def test_the_page_makes_no_markup_of_text(sink):
    assert sink not in STATIC["app.js"]


def test_the_page_has_no_inline_script_or_style():
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", STATIC["index.html"]) == []


# --- the feed --------------------------------------------------------------------------------------------------------------


def messages(reader) -> list[tuple[str, dict]]:
    found = []
    while not reader.queue.empty():
        first, second, *_ = reader.queue.get_nowait().decode().split("\n")
        found.append((first.removeprefix("event: "), json.loads(second.removeprefix("data: "))))
    return found


async def test_a_snapshot_has_the_lanes_with_their_steps():
    feed = Feed("default")
    feed.update([lane(reason="A")], [], NOON)
    feed.update([lane(ready=2)], [], after(30))
    found = await feed.snapshot(WINDOW_S)
    assert (found["kind"], found["namespace"], found["at"], found["recordedSince"]) == (
        "LaneHistory",
        "default",
        START + 30,
        START,
    )
    (item,) = found["items"]
    assert (item["ready"], item["verdict"]) == (2, "Waits")
    assert item["steps"] == [(START, 2, 1, "A"), (START + 30, 2, 2, "")]


async def test_before_the_first_list_it_says_so():
    found = await Feed("").snapshot(60)
    assert (found["isListed"], found["at"], found["items"]) == (False, None, [])


@pytest.mark.parametrize(("asked", "given"), [(0, 60), (900, 900), (999_999, WINDOW_S)])
async def test_the_window_is_bounded(asked, given):
    assert (await Feed("").snapshot(asked))["windowSeconds"] == given


async def test_a_window_of_hours_has_as_many_steps_as_a_chart_has_pixels():
    feed = Feed("")
    for at in range(0, WINDOW_S, 4):
        feed.update([lane(ready=at // 4 % 7)], [], after(at))
    assert len((await feed.snapshot(WINDOW_S))["items"][0]["steps"]) <= 601


def test_only_what_changed_is_sent():
    feed = Feed("")
    feed.update([lane("a"), lane("b")], [], NOON)
    reader = feed.subscribe(lambda: None)
    feed.update([lane("a"), lane("b", ready=2)], [], after(1))
    feed.update([lane("a"), lane("b", ready=2)], [], after(2))
    feed.update([lane("a")], [], after(3))
    (first, second) = messages(reader)
    assert [each["name"] for each in first[1]["changed"]] == ["b"]
    assert second[1]["removed"] == [{"kind": "RayCluster", "namespace": "default", "name": "b"}]


def test_a_quiet_cluster_has_a_heartbeat_also_when_the_clock_is_set_back():
    feed = Feed("")
    feed.update([lane()], [], NOON)
    reader = feed.subscribe(lambda: None)
    for at in (1, 2, HEARTBEAT_S, HEARTBEAT_S + 1, -3600, -3599):
        feed.update([lane()], [], after(at))
    assert [(name, each["at"] - START, each["changed"]) for name, each in messages(reader)] == [
        ("changes", HEARTBEAT_S, []),
        ("changes", -3600, []),
    ]


async def test_a_clock_that_is_set_back_moves_the_beginning_of_the_history_back():
    feed = Feed("")
    for at, ready in ((0, 0), (60, 1), (90 - 3600, 2)):
        feed.update([lane(ready=ready)], [], after(at))
    found = await feed.snapshot(WINDOW_S)
    assert (found["at"] - START, found["recordedSince"] - START) == (90 - 3600, 30 - 3600)
    steps = found["items"][0]["steps"]
    assert [at - START for at, *_ in steps] == [30 - 3600, 90 - 3600]
    assert [ready for _, _, ready, _ in steps] == [0, 2]


def test_a_reader_that_does_not_keep_up_is_dropped():
    feed, dropped = Feed(""), []
    slow, other = feed.subscribe(lambda: dropped.append("slow")), feed.subscribe(lambda: dropped.append("other"))
    for at in range(MAX_QUEUED + 1):
        feed.update([lane(ready=at)], [], after(at))
        messages(other)
    assert (dropped, slow.queue.qsize()) == (["slow"], MAX_QUEUED)
    feed.update([lane()], [], after(99))
    assert (dropped, len(messages(other))) == (["slow"], 1)


def test_the_number_of_readers_is_bounded():
    feed = Feed("")
    readers = [feed.subscribe(lambda: None) for _ in range(MAX_READERS)]
    with pytest.raises(TooManyReadersError):
        feed.subscribe(lambda: None)
    feed.unsubscribe(readers[0])
    feed.subscribe(lambda: None)


async def test_a_workload_that_gave_and_the_one_that_received_have_marks():
    feed = Feed("")
    feed.update([lane("a"), lane("b"), lane("c")], [], NOON)
    reader = feed.subscribe(lambda: None)
    feed.update([lane("a", resizes=(Resized(START, 4, 2, "", ("uid-b",)),)), lane("b"), lane("c")], [], after(1))
    ((_, message),) = messages(reader)
    assert {each["name"]: each["marks"] for each in message["changed"]} == {
        "a": [{"at": START, "gave": True, "text": "gave 2 of 4 trainers to RayCluster default/b"}],
        "b": [{"at": START, "gave": False, "text": "received capacity of RayCluster default/a, which gave 2 of 4 trainers"}],
    }  # fmt: skip
    items = (await feed.snapshot(60))["items"]
    assert [(each["name"], len(each["marks"])) for each in items] == [("a", 1), ("b", 1), ("c", 0)]
    feed.update([lane("b"), lane("c")], [], after(2))
    ((_, message),) = messages(reader)
    assert [(each["name"], each["marks"]) for each in message["changed"]] == [("b", [])]


async def test_a_lost_connection_has_a_time_and_a_missing_right_has_none():
    feed = Feed("")
    forbidden, lost = (
        Problem("TrainingJob", "forbidden", is_rejected=True),
        Problem("RayCluster", "refused", is_rejected=False),
    )
    feed.update([], [forbidden], NOON)
    assert (await feed.snapshot(60))["disconnectedSince"] is None
    for at in (10, 20):
        feed.update([], [forbidden, lost], after(at))
    found = await feed.snapshot(60)
    assert found["disconnectedSince"] == START + 10
    assert [(each["kind"], each["rejected"]) for each in found["problems"]] == [
        ("TrainingJob", True),
        ("RayCluster", False),
    ]
    feed.update([], [], after(30))
    assert (await feed.snapshot(60))["disconnectedSince"] is None


@asynccontextmanager
async def followed(wire: InProcessTransport, *forbidden: str):
    """The feed of that API server, on which these kinds may not be read."""
    wire.admission = lambda request: Answer(403, "Forbidden") if request.path.rpartition("/")[2] in forbidden else None
    clock, feeds = Clock(), Feeds(View("default"))
    feed = feeds.of(View("default"))
    client = Client(wire, clock=clock)
    watch, capacity = LaneWatch(client, ("default",), clock), CapacityWatch(client, clock, DEFAULT_GPUS)
    running = (watch.run(), capacity.run(), follow(watch, feeds, clock, capacity))
    tasks = [asyncio.create_task(each) for each in running]
    await asyncio.sleep(2)
    try:
        yield feed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.looptime
async def test_the_feed_follows_the_cluster():
    api = api_with(cluster_object("a"))
    async with followed(InProcessTransport(api), "trainingjobs") as feed:
        assert [each["name"] for each in (await feed.snapshot(60))["items"]] == ["a"]
        (problem,) = (await feed.snapshot(60))["problems"]
        assert (problem["kind"], problem["rejected"]) == ("TrainingJob", True)
        assert api.handle(Request("DELETE", f"{PATHS['RayCluster']}/a", {}, {}, b"")).status == 200
        await asyncio.sleep(2)
        assert (await feed.snapshot(60))["items"] == []


@pytest.mark.looptime
async def test_five_thousand_workloads_are_listed_in_pages_and_each_change_is_one_message():
    api = api_with()
    for number in range(2_500):
        for resource, made in (("rayclusters.ray.io", cluster_object), ("trainingjobs.paddlepaddle.org", job_object)):
            api.store.create(resource, made(f"{resource[0]}-{number}"))
    wire, pages = InProcessTransport(api), []
    wire.on_request = lambda request: pages.append(request.path) if "limit" in request.query else None
    async with followed(wire) as feed:
        assert len(pages) > 4
        pages.clear()
        reader = feed.subscribe(lambda: None)
        found = await feed.snapshot(60)
        assert len({(each["kind"], each["name"]) for each in found["items"]}) == 5_000
        assert all(each["steps"] for each in found["items"])
        assert feed._recording.history.size_bytes < MAX_BYTES
        resized = {"spec": {"workerGroupSpecs": [{**cluster_object()["spec"]["workerGroupSpecs"][0], "replicas": 7}]}}
        merge = {"content-type": "application/merge-patch+json"}
        path = f"{PATHS['RayCluster']}/r-17"
        assert api.handle(Request("PATCH", path, {}, merge, msgspec.json.encode(resized))).status == 200
        await asyncio.sleep(2)
        changed = [
            each["name"] for name, message in messages(reader) if name == "changes" for each in message["changed"]
        ]
        assert changed == ["r-17"]
        assert not pages


# --- capacity --------------------------------------------------------------------------------------------------------------


def requesting(name: str, cpu: str, *, node: str = "n0", labels: dict | None = None) -> dict:
    pod = pod_object(name, node=node, labels=labels, phase="Running")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return pod


@pytest.mark.looptime
async def test_the_capacity_follows_pods_and_nodes_without_another_list():
    api = api_with(node(), requesting("worker", "2"), requesting("other", "500m", labels={}))
    wire, requests = InProcessTransport(api), []
    wire.on_request = lambda request: requests.append((request.method, request.path, "watch" in request.query))
    async with followed(wire) as feed:
        cpu, memory = (await feed.snapshot(60))["capacity"]["resources"]
        assert (cpu["allocatable"], cpu["rayClusters"], cpu["otherPods"], cpu["free"]) == (8, 2, 0.5, 5.5)
        assert (memory["name"], memory["allocatable"], memory["rayClusters"]) == ("memory", 32 * 2**30, 2**30)
        reader = feed.subscribe(lambda: None)
        assert (
            api.handle(Request("DELETE", f"{PATHS['Pod']}/worker", {"gracePeriodSeconds": "0"}, {}, b"")).status == 200
        )
        await asyncio.sleep(20)
        assert messages(reader)[0][1]["capacity"]["resources"][0]["free"] == 7.5
        await asyncio.sleep(1800)
        assert (await feed.snapshot(60))["capacity"]["resources"][0]["rayClusters"] == 0
    assert requests.count(("GET", "/api/v1/pods", False)) == 1
    assert requests.count(("GET", "/api/v1/nodes", False)) == 1


@pytest.mark.looptime
@pytest.mark.parametrize("kind", ["nodes", "pods"])
async def test_without_the_right_to_nodes_or_pods_the_capacity_is_not_shown_and_the_lanes_are(kind):
    wire, requests = InProcessTransport(api_with(cluster_object("a"), node(), requesting("b", "1"))), []
    wire.on_request = lambda request: requests.append(request.path)
    async with followed(wire, kind) as feed:
        found = await feed.snapshot(60)
    assert found["capacity"] == {"nodes": 0, "problem": f"cannot list {kind}: on purpose", "resources": []}
    assert ([each["name"] for each in found["items"]], found["problems"]) == (["a"], [])
    assert ("/api/v1/pods" in requests) == (kind == "pods"), "pods are of no use without nodes"


@pytest.mark.looptime
async def test_the_capacity_names_no_namespace_and_no_pod():
    api = api_with(node(), requesting("secret-pod", "2", labels={"raytide.io/x": "secret-label"}))
    async with followed(InProcessTransport(api)) as feed:
        text = json.dumps((await feed.snapshot(60))["capacity"])
    assert '"otherPods": 2.0' in text
    assert "secret" not in text
    assert "default" not in text


# --- HTTP ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/app.js", "/style.css", "/icon.svg", "/api/lanes", "/api/groups/a/b/c", "/api/nothing", "/none"]
)
async def test_every_answer_has_the_security_headers(path):
    async with Site().served() as site, site.session.get(path) as answer:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert not [name for name in answer.headers if name.startswith("Access-Control")]
        assert "Set-Cookie" not in answer.headers
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.status == {"/api/lanes": 401, "/api/groups/a/b/c": 401, "/api/nothing": 401, "/none": 404}.get(
            path, 200
        )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 401, id="no token"),
        pytest.param({"Authorization": "Bearer "}, 401, id="an empty token"),
        pytest.param({"Authorization": "Bearer another"}, 401, id="another token"),
        pytest.param({"Authorization": "Bearer \xe4-token"}, 401, id="a token that is not ASCII"),
        pytest.param({"Authorization": TOKEN}, 401, id="no Bearer"),
        pytest.param({**AUTHORIZED, "Host": "attacker.example:8250"}, 403, id="another host, as DNS rebinding has it"),
        pytest.param({**AUTHORIZED, "Host": "127.0.0.1.attacker.example"}, 403, id="a host that begins like this one"),
        pytest.param({**AUTHORIZED, "Host": "[::1"}, 403, id="no host at all"),
        pytest.param({**AUTHORIZED, "Origin": "https://attacker.example"}, 403, id="another site"),
        pytest.param({**AUTHORIZED, "Origin": "null"}, 403, id="a sandboxed frame"),
        pytest.param(AUTHORIZED, 200, id="the token"),
        pytest.param({**AUTHORIZED, "Host": "localhost:9000"}, 200, id="through ssh -L"),
        pytest.param(
            {**AUTHORIZED, "Host": "localhost:9000", "Origin": "http://localhost:9000"}, 200, id="the page itself"
        ),
    ],
)
async def test_which_requests_are_answered(headers, status):
    async with Site(cluster_object()).served() as site:
        for path in ("/api/lanes", "/api/why/RayCluster/default/demo"):
            found, body = await site.get(path, headers)
            assert (found, "error" in body) == (status, status != 200), body


async def test_another_site_cannot_ask_for_permission():
    headers = {"Origin": "https://attacker.example", "Access-Control-Request-Method": "POST"}
    async with Site().served() as site:
        status, _ = await site.get("/api/plan", headers, "OPTIONS")
        assert status == 403


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/api/lanes"), ("DELETE", "/api/why/RayCluster/default/demo"), ("GET", "/api/plan")]
)
async def test_other_methods_are_rejected(method, path):
    async with Site(cluster_object()).served() as site:
        assert await site.get(path, method=method) == (405, {"error": "Method Not Allowed"})


@pytest.mark.parametrize("window", ["", "x", "-1", "9" * 5000, "900", "٣"])
async def test_any_window_is_answered(window):
    async with Site().served() as site:
        status, body = await site.get("/api/lanes", params={"window": window})
        assert (status, 60 <= body["windowSeconds"] <= WINDOW_S) == (200, True)


async def test_text_with_markup_is_json_that_no_browser_takes_for_a_page():
    site = Site()
    site.feed.update([lane(reason=MARKUP, message=HOSTILE)], [Problem("TrainingJob", MARKUP, is_rejected=True)], NOON)
    async with site.served(), site.session.get("/api/lanes", headers=AUTHORIZED) as answer:
        assert answer.content_type == "application/json"
        (item,) = (await answer.json())["items"]
        assert (item["reason"], item["message"]) == (MARKUP, HOSTILE)


async def until(is_so) -> None:
    """Wait for a state, for ten seconds at most."""
    async with asyncio.timeout(10 * PATIENCE):
        while not is_so():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)


async def stream_of(answer):
    """The messages of a stream."""
    while True:
        part = (await answer.content.readuntil(b"\n\n")).decode().strip().split("\n")
        yield part[0].removeprefix("event: "), json.loads(part[1].removeprefix("data: "))


async def test_a_stream_has_all_lanes_and_then_changes_and_ends_with_the_server():
    site = Site()
    site.feed.update([lane("a")], [], NOON)
    async with site.served(), site.session.get("/api/events?window=900", headers=AUTHORIZED) as answer:
        assert answer.content_type == "text/event-stream"
        stream = stream_of(answer)
        name, message = await anext(stream)
        assert (name, [each["name"] for each in message["items"]], message["windowSeconds"]) == ("lanes", ["a"], 900)
        site.feed.update([lane("a", message=f"{MARKUP}\n\nevent: lanes\ndata: {{}}")], [], after(1))
        name, message = await anext(stream)
        assert (name, message["changed"][0]["message"].startswith(MARKUP)) == ("changes", True)
        site.feed.close()
        assert await answer.content.read() == b""


async def test_a_stream_that_is_closed_makes_place_for_another():
    site = Site()
    async with site.served():
        for _ in range(MAX_READERS + 3):
            async with site.session.get("/api/events", headers=AUTHORIZED) as answer:
                assert answer.status == 200
                await anext(stream_of(answer))
            await until(lambda: not site.feed._readers)


async def test_too_many_streams_are_rejected():
    site = Site()
    readers = [site.feed.subscribe(lambda: None) for _ in range(MAX_READERS)]
    async with site.served():
        assert await site.get("/api/events") == (503, {"error": "too many pages are open: close one"})
    assert len(readers) == MAX_READERS


async def test_a_stalled_stream_is_closed():
    site = Site()
    async with site.served():
        reading, writing = await asyncio.open_connection("127.0.0.1", site.port, limit=1024)
        writing.write(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        await until(lambda: site.feed._readers)
        at = 0
        while site.feed._readers:
            at += 1
            site.feed.update([lane(message="x" * 100_000, ready=at)], [], after(at))
            await asyncio.sleep(0)
            assert at < 2000
        writing.close()
        assert reading is not None


# --- groups ------------------------------------------------------------------------------------------------------------------


async def test_groups_have_numbers_in_the_lane_and_steps_of_their_own():
    site = Site()
    for at, ready in ((0, 0), (9, 2)):
        site.feed.update([lane(groups=(GroupSize("cpu", 2, ready, "A"), GroupSize("gpu", 1, None)))], [], after(at))
    async with site.served():
        _, found = await site.get("/api/lanes")
        assert found["items"][0]["groups"] == [
            {"name": "cpu", "wanted": 2, "ready": 2, "reason": "A"},
            {"name": "gpu", "wanted": 1, "ready": None, "reason": ""},
        ]
        status, found = await site.get("/api/groups/RayCluster/default/demo", params={"window": "900"})
        assert (status, [each["steps"] for each in found["groups"]]) == (
            200,
            [[[START, 2, 0, "A"], [START + 9, 2, 2, "A"]], []],
        )
        for path in ("TrainingJob/default/demo", "RayCluster/other/demo", "RayCluster/default/..%2fdemo"):
            assert await site.get(f"/api/groups/{path}") == (404, {"error": "there is no such workload"})


# --- explanations ------------------------------------------------------------------------------------------------------------


async def test_an_explanation_is_that_of_raytide_why():
    async with Site(cluster_object(), job_object("other")).served() as site:
        status, found = await site.get("/api/why/RayCluster/default/demo")
        assert (status, found["kind"], found["object"]["name"]) == (200, "Explanation", "demo")
        assert found["blockers"][0]["reason"] == "NotReconciled"


async def test_a_workload_that_does_not_exist_is_one_sentence():
    async with Site(cluster_object()).served() as site:
        status, found = await site.get("/api/why/TrainingJob/default/demo")
        assert (status, list(found)) == (404, ["error"])
        assert found["error"].startswith("there is no TrainingJob demo in namespace default: ")


@pytest.mark.parametrize(
    "path",
    [
        "Pod/default/demo",
        "RayCluster/default/..%2f..%2fsecrets",
        "RayCluster/kube%20system/demo",
        "RayCluster/default/%3Cb%3E",
    ],
)
async def test_nothing_else_can_be_read(path):
    async with Site(cluster_object()).served() as site:
        assert await site.get(f"/api/why/{path}") == (404, {"error": "there is no such workload"})


async def test_without_the_right_to_read_it_the_sentence_says_so():
    async with Site(cluster_object(), forbidden=("demo",)).served() as site:
        status, found = await site.get("/api/why/RayCluster/default/demo")
        assert (status, found["error"]) == (404, "RayCluster default/demo cannot be read: on purpose")


async def test_what_may_not_be_read_beside_it_is_named():
    async with Site(cluster_object(), forbidden=("pods",)).served() as site:
        status, found = await site.get("/api/why/RayCluster/default/demo")
        assert (status, [each["resource"] for each in found["unreadable"]]) == (200, ["pods"])


@pytest.mark.rule("FD:UX3-1")
async def test_who_holds_the_capacity_is_named():
    async with Site(cluster_object(), node()).served() as site:
        short_of_cpu(site.api)
        _, found = await site.get("/api/why/RayCluster/default/demo")
    (each,) = [one for one in found["blockers"] if one["shortages"]]
    assert (each["reason"], each["holder"]) == ("Unschedulable", "default/rl (RayCluster) 6 cpu")
    (short,) = each["shortages"]
    holder = {"kind": "RayCluster", "namespace": "default", "name": "rl", "amount": "6", "note": ""}
    assert (short["message"], short["holders"]) == (
        "needs 4 cpu; 2 of 8 are free, at most 2 on one node, where a pod needs 4",
        [holder],
    )


@pytest.mark.rule("FD:UX3-1")
async def test_the_fix_is_named_with_its_command_and_what_it_would_change():
    async with Site(cluster_object(), node()).served() as site:
        short_of_cpu(site.api)
        _, found = await site.get("/api/why/RayCluster/default/demo")
    change, nodes = found["changes"]
    assert (nodes["kind"], nodes["field"], nodes["to"], nodes["command"]) == ("Node", "nodes", 1, "")
    assert (change["name"], change["field"], change["from"], change["to"]) == ("rl", "replicas", 2, 1)
    assert change["command"] == "raytide scale raycluster/rl 1 -n default"
    assert [(each["name"], each["without"], each["with"]) for each in change["effects"]] == [
        ("demo", 0, 1),
        ("rl", 2, 1),
    ]


@pytest.mark.rule("FD:UX3-1")
@pytest.mark.parametrize("plural", ["trainingjobs", "resourcequotas", "priorityclasses"])
async def test_without_the_right_to_list_what_a_simulation_needs_no_fix_is_named(plural):
    """It would be a guess; the holders are known nevertheless."""
    async with Site(cluster_object(), node(), forbidden=(plural,)).served() as site:
        short_of_cpu(site.api)
        _, found = await site.get("/api/why/RayCluster/default/demo")
    assert found["changes"] == []
    assert [each["message"] for each in found["unreadable"]] == [
        f"no fix is simulated: {plural} cannot be listed: on purpose"
    ]
    assert [one["holder"] for one in found["blockers"] if one["shortages"]] == ["default/rl (RayCluster) 6 cpu"]


@pytest.mark.rule("FD:UX3-1")
async def test_a_holder_that_may_not_be_read_is_not_told_to_be_scaled():
    async with Site(cluster_object(), node(), forbidden=("rl",)).served() as site:
        short_of_cpu(site.api)
        _, found = await site.get("/api/why/RayCluster/default/demo")
    assert ([each["kind"] for each in found["changes"]], found["unreadable"]) == (["Node"], [])


@pytest.mark.rule("FD:UX3-1")
async def test_without_the_right_to_list_nodes_the_holders_are_not_known():
    async with Site(cluster_object(), forbidden=("nodes",)).served() as site:
        short_of_cpu(site.api)
        _, found = await site.get("/api/why/RayCluster/default/demo")
    assert [one["shortages"] for one in found["blockers"]] == [[], []]
    assert [each["resource"] for each in found["unreadable"]] == ["capacity"]
    assert found["unreadable"][0]["message"].startswith("who holds the capacity is not known: ")


async def test_an_internal_error_is_shown_in_the_terminal_only(monkeypatch, capsys):
    monkeypatch.setattr(ui_app, "explained", lambda *_: 1 / 0)
    async with Site(cluster_object()).served() as site:
        status, found = await site.get("/api/why/RayCluster/default/demo")
    assert (status, "ZeroDivision" in json.dumps(found)) == (500, False)
    assert "ZeroDivisionError" in capsys.readouterr().err


# --- what if -----------------------------------------------------------------------------------------------------------------


async def test_the_effect_of_a_new_job():
    async with Site(node()).served() as site:
        status, found = await site.plan(NEW)
    assert (status, found["kind"], found["others"], found["omitted"]) == (200, "Effect", [], 0)
    (new,) = found["submitted"]
    assert (new["namespace"], new["name"], new["without"], new["with"]) == ("default", "new", 0, 4)
    assert (new["minimum"], new["maximum"]) == (2, 4)
    assert found["sentences"] == ["default/new starts with 4 of 2 to 4", "the size of no other job changes"]


async def test_the_effect_of_a_new_raycluster():
    """The node has 8 CPUs: the head has one, one worker four."""
    async with Site(node()).served() as site:
        status, found = await site.plan(NEW_CLUSTER)
    assert (status, found["kind"], found["others"], found["omitted"]) == (200, "Effect", [], 0)
    (new,) = found["submitted"]
    lacks = "node n0 comes closest: it lacks 1 cpu (it requests 4 cpu; 3 of 8 free)"
    assert new == {
        "kind": "RayCluster",
        "namespace": "default",
        "name": "new",
        "current": 0,
        "minimum": 1,
        "maximum": 4,
        "without": 0,
        "with": 1,
        "wanted": 3,
        "scheduled": 1,
        "reason": "Unschedulable",
        "message": lacks,
        "head": {"wanted": 1, "scheduled": 1, "pending": 0, "rejected": 0, "reason": "", "message": ""},
        "groups": [
            {"name": "cpu", "wanted": 3, "scheduled": 1, "pending": 2, "rejected": 0}
            | {"reason": "Unschedulable", "message": lacks}
        ],
    }
    assert found["sentences"] == [
        "RayCluster default/new gets its head and 1 of 3 workers",
        f"RayCluster default/new: 2 pods of group cpu stay Pending: {lacks}",
        "the size of no job changes",
    ]


async def test_a_yaml_may_have_both_kinds():
    async with Site(node()).served() as site:
        status, found = await site.plan(f"{NEW_CLUSTER}---\n{NEW}")
    assert (status, [(each["kind"], each["with"]) for each in found["submitted"]]) == (
        200,
        [("TrainingJob", 3), ("RayCluster", 1)],
    )


async def test_the_rayclusters_are_read_only_for_a_new_one():
    """Without the right to list them, whether it exists is not known, and the answer says so."""
    async with Site(node(), forbidden=("rayclusters",)).served() as site:
        of_job, of_cluster = (await site.plan(NEW))[1], (await site.plan(NEW_CLUSTER))[1]
    assert of_job["notes"] == []
    assert of_cluster["notes"] == ["the plan ignores rayclusters, because they cannot be listed: on purpose"]


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param("", "the YAML: no TrainingJob or RayCluster to submit", id="empty"),
        pytest.param("hello", "the YAML: document 1: this is text, not a Kubernetes object", id="text"),
        pytest.param("a: [", "the YAML: line 2, column 1: did not find", id="no YAML"),
        pytest.param("a: b", "the YAML: document 1: apiVersion is missing", id="no object"),
        pytest.param(
            "{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: a}}", "the YAML: no TrainingJob or RayCluster to submit, only RayJob (ray.io/v1)", id="another kind"
        ),
        pytest.param(
            "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a}}", "the YAML: document 1 (RayCluster default/a): spec is missing", id="no spec"
        ),
        pytest.param(
            NEW_CLUSTER.replace("minReplicas: 1", "minReplicas: 9"), "the YAML: document 1 (RayCluster default/new): spec.workerGroupSpecs[0].minReplicas is 9, above maxReplicas 4", id="invalid RayCluster"
        ),
        pytest.param(NEW_CLUSTER.replace('cpu: "4"', "cpu: lots"), "the YAML: document 1 (RayCluster default/new): spec.workerGroupSpecs[0].template.spec.containers[0].resources.requests.cpu: 'lots' is not a quantity", id="no quantity in a RayCluster"),
        pytest.param(
            NEW_CLUSTER.replace("name: new", "name: demo"), "the YAML: document 1: RayCluster default/demo exists already; submit it under another name", id="RayCluster exists"
        ),
        pytest.param(
            NEW_CLUSTER.replace("spec:\n", "spec:\n  managedBy: kueue.x-k8s.io/multikueue\n", 1), "the YAML: document 1 (RayCluster default/new): spec.managedBy names another controller (kueue.x-k8s.io/multikueue)", id="managed by another controller"
        ),
        pytest.param(NEW.replace("min-instance: 2", "min-instance: 9"), "the YAML: document 1", id="invalid"),
        pytest.param(NEW.replace('cpu: "1"', "cpu: lots"), "the YAML: document 1", id="no quantity"),
        pytest.param(BOMB + NEW, "the YAML: line 2: aliases (*a) are not supported: write the value", id="aliases"),
        pytest.param("[" * 50_000, "the YAML: line 1, column 101: nested deeper than 100 levels", id="nested"),
        pytest.param(NEW + "---\n" + NEW, "the YAML: document 2: TrainingJob default/new is defined twice", id="twice"),
        pytest.param(NEW.replace("name: new", "name: demo"), "the YAML: document 1: TrainingJob default/demo exists already", id="exists"),
        pytest.param(b"\xff\xfe", "the YAML is not valid UTF-8 text", id="no text"),
    ],
)  # fmt: skip
async def test_a_yaml_without_a_new_job_is_one_sentence(body, sentence):
    async with Site(node(), job_object(), cluster_object()).served() as site:
        status, found = await site.plan(body)
        assert (status, list(found)) == (400, ["error"]), found
        assert found["error"].startswith(sentence), found


async def test_a_deeply_nested_yaml_takes_no_time():
    """libyaml takes time in proportion to the square of the depth: as much as the page accepts kept a processor busy for minutes."""
    async with Site(node()).served() as site:
        before_s = time.process_time()
        status, found = await site.plan("[" * 100_000)
        assert (status, found["error"][:43]) == (400, "the YAML: line 1, column 101: nested deeper")
        assert time.process_time() - before_s < 2 * machine_speed.slowness()


async def test_a_large_yaml_is_rejected():
    async with Site(node()).served() as site:
        assert await site.plan(b"#" * (ui_app.MAX_YAML + 1)) == (413, {"error": "the YAML is too large"})


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_what_a_form_of_another_site_could_send_is_rejected(kind):
    async with Site(node()).served() as site:
        status, found = await site.plan(NEW, {**AUTHORIZED, "Content-Type": kind})
        assert (status, found["error"]) == (415, "the content type must be application/json or application/yaml")


async def test_without_the_right_to_list_nodes_the_sentence_says_so():
    async with Site(forbidden=("nodes",)).served() as site:
        assert await site.plan(NEW) == (
            403,
            {"error": "the effect cannot be computed: nodes cannot be listed: on purpose"},
        )
