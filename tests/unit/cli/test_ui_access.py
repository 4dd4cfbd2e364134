"""`raytide ui --auth kubernetes`: each caller has a token of the API server and sees what that token may list."""

import asyncio
import json
import ssl
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import raytide.cli
from raytide.cli.lane_watch import Problem
from raytide.cli.ui.access import KEPT_S, MAX_KEPT, AccessError, CallerTokens, View
from raytide.cli.ui.feed import TooManyReadersError
from raytide.cli.ui.feeds import IDLE_UPDATES, Feeds
from raytide.explain.model import Verdict
from raytide.explain.overview import GroupSize, Lane, Resized
from raytide.kube.credentials import ClientConfig, Credentials, in_cluster_config
from raytide_sandbox.certificates import make_certificates
from support.caller_rights import EVERYTHING, CallersSite, RightsServer
from support.deadlines import PATIENCE
from support.explored import explored
from support.stored_workloads import cluster_object, job_object
from support.ui_site import NEW, NOON, START, after, node

pytestmark = [pytest.mark.rule("SC:S21"), pytest.mark.rule("FD:SEC-F7"), pytest.mark.rule("D30")]

RAY, JOB = "RayCluster", "TrainingJob"
BOTH = frozenset({RAY, JOB})


def lane(namespace: str, name: str, kind: str = RAY, **more) -> Lane:
    return Lane(kind, namespace, name, 4, 1, Verdict.WAITS, uid=f"uid-{namespace}-{name}", **more)


def dev(*namespaces: str) -> set[tuple[str, str]]:
    """The rights of a developer of these namespaces."""
    return {(plural, each) for each in namespaces for plural in ("rayclusters", "trainingjobs", "pods", "events")}


# --- arguments -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--bind-address", "0.0.0.0"), "need --auth kubernetes"),
        (("--watch-namespace", "a"), "need --auth kubernetes"),
        (("--tls-cert-file", "a", "--tls-private-key-file", "b"), "need --auth kubernetes"),
        (("--auth", "kubernetes", "-n", "a"), "--watch-namespace limits the choice"),
        (("--auth", "kubernetes", "-A"), "each caller chooses a namespace"),
        (("--auth", "kubernetes", "--open"), "are for --auth printed"),
        (
            ("--auth", "kubernetes", "--watch-namespace", "a,b/c"),
            "--watch-namespace: 'b/c' is not a name in Kubernetes",
        ),
        (("--auth", "kubernetes", "--tls-cert-file", "a"), "belong together: give both"),
        (("--auth", "none"), "'none' is not one of"),
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error(words, message):
    result = CliRunner().invoke(raytide.cli.main, ["ui", *words])
    assert (result.exit_code, message in " ".join(result.output.split())) == (2, True), result.output


def test_a_certificate_that_does_not_exist_is_one_line_that_names_it(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    kubeconfig.write_text(json.dumps(config))
    words = ["ui", "--auth", "kubernetes", "--port", "0", "--kubeconfig", str(kubeconfig)]
    result = CliRunner().invoke(
        raytide.cli.main, [*words, "--tls-cert-file", str(tmp_path / "tls.crt"), "--tls-private-key-file", "tls.key"]
    )
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {tmp_path}/tls.crt, tls.key: no certificate with its private key: ")


# --- rights ----------------------------------------------------------------------------------------------------------------

RIGHTS = {"dev": dev("team-a"), "admin": {EVERYTHING}, "half": {("trainingjobs", "team-a")}, "none": set()}


@pytest.mark.parametrize(
    ("token", "namespace", "expected"),
    [
        pytest.param("dev", "team-a", View("team-a", BOTH), id="a developer in the namespace of the team"),
        pytest.param("dev", "team-b", (403, "in namespace team-b: ask for the right"), id="in that of another team"),
        pytest.param("dev", "", (403, "in all namespaces: choose a namespace"), id="in all"),
        pytest.param("dev", None, (403, "in all namespaces: choose a namespace"), id="without a namespace: all"),
        pytest.param("admin", "", View("", BOTH), id="an administrator in all"),
        pytest.param("admin", "team-b", View("team-b", BOTH), id="an administrator in one"),
        pytest.param("half", "team-a", View("team-a", frozenset({JOB})), id="one kind only"),
        pytest.param("none", "team-a", (403, "the token may not list RayClusters or TrainingJobs"), id="no rights"),
        pytest.param("expired", "team-a", (401, "it is wrong or has expired"), id="an expired token"),
        pytest.param("", "team-a", (401, "sign in"), id="no token"),
        pytest.param("a\r\nX: y", "team-a", (401, "sign in"), id="a token that would be another header"),
        pytest.param("x" * 9000, "team-a", (401, "sign in"), id="a very long token"),
        pytest.param("dev", "../x", (400, "the namespace is not a valid name"), id="no name of a namespace"),
        pytest.param("dev", "x" * 300, (400, "the namespace is not a valid name"), id="a very long namespace"),
    ],
)  # fmt: skip
async def test_what_a_token_may_see(token, namespace, expected):
    access = CallerTokens(RightsServer(**RIGHTS).open_transport)
    if isinstance(expected, View):
        assert await access.view(token, namespace) == expected
        return
    with pytest.raises(AccessError) as caught:
        await access.view(token, namespace)
    assert (caught.value.status, expected[1] in str(caught.value)) == (expected[0], True), caught.value


async def test_a_namespace_that_is_not_followed_is_refused_without_a_question():
    server = RightsServer(**RIGHTS)
    access = CallerTokens(server.open_transport, ("team-a",))
    with pytest.raises(AccessError, match="this server does not follow that namespace"):
        await access.view("admin", "team-b")
    assert server.opened == []
    assert await access.view("admin", "team-a") == View("team-a", BOTH)


@pytest.mark.looptime
async def test_an_answer_holds_for_half_a_minute_and_a_right_that_is_taken_away_is_then_gone():
    server = RightsServer(dev=dev("team-a"))
    access = CallerTokens(server.open_transport)
    for _ in range(50):
        await access.view("dev", "team-a")
    assert server.reviews == 2  # one of each kind
    server.rights.clear()
    assert await access.view("dev", "team-a") == View("team-a", BOTH)
    await asyncio.sleep(KEPT_S)
    for _ in range(50):
        with pytest.raises(AccessError, match="expired"):
            await access.view("dev", "team-a")
    assert len(server.opened) == 2, "a token that is not accepted is asked about once, too"


async def test_an_api_server_that_is_away_is_no_answer_that_is_kept():
    server = RightsServer(dev=dev("team-a"))
    access = CallerTokens(server.open_transport)
    server.is_away = True
    with pytest.raises(AccessError) as caught:
        await access.view("dev", "team-a")
    assert caught.value.status == 503
    server.is_away = False
    assert await access.view("dev", "team-a") == View("team-a", BOTH)


async def test_the_number_of_answers_is_bounded_and_none_has_a_token():
    access = CallerTokens(RightsServer(dev=dev("team-a")).open_transport)
    for number in range(MAX_KEPT + 10):
        with pytest.raises(AccessError):
            await access.view(f"secret-{number}", "team-a")
    assert len(access._answers) == MAX_KEPT
    assert "secret" not in repr(access._answers)


async def test_a_caller_never_has_the_credentials_of_the_server(tmp_path):
    async def credential_source() -> Credentials:
        return Credentials("Bearer of-the-server")

    certified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    config = ClientConfig("https://server", credential_source, tls=certified, anonymous_tls=lambda: None)
    caller = config.of_caller("of-the-caller")
    assert (await caller.credential_source()).authorization == "Bearer of-the-caller"
    assert caller.tls is None, "a client certificate would count before the token"
    assert config.tls is certified


async def test_in_a_pod_the_caller_is_asked_about_at_the_same_api_server(tmp_path):
    (tmp_path / "ca.crt").write_bytes(make_certificates(datetime.now(UTC), ["10.0.0.1"]).authority)
    (tmp_path / "token").write_text("of-the-pod")
    config = in_cluster_config("10.0.0.1", "443", environ={}, directory=tmp_path)
    caller = config.of_caller("of-the-caller")
    assert (caller.server, (await caller.credential_source()).authorization) == (
        "https://10.0.0.1:443",
        "Bearer of-the-caller",
    )
    assert caller.tls is not config.tls
    assert caller.tls.verify_mode is ssl.CERT_REQUIRED
    assert len(caller.tls.get_ca_certs()) == 1


# --- views -----------------------------------------------------------------------------------------------------------------


async def test_a_view_has_its_namespace_and_of_the_rest_three_numbers():
    feeds = Feeds(View(""), views=9)
    gave = lane("team-a", "giver", JOB, resizes=(Resized(START, 4, 2, "", ("uid-team-b-secret",)),))
    feeds.update([gave, lane("team-b", "secret", JOB), lane("team-c", "hidden")], [], NOON)
    found = await feeds.of(View("team-a")).snapshot(60)
    assert [(each["namespace"], each["name"]) for each in found["items"]] == [("team-a", "giver")]
    assert found["elsewhere"] == {"workloads": 2, "wanted": 8, "ready": 2}
    assert [mark["text"] for mark in found["items"][0]["marks"]] == ["gave 2 of 4 trainers to another workload"]
    everything = await feeds.of(View("")).snapshot(60)
    assert (len(everything["items"]), everything["elsewhere"]) == (3, None)


async def test_a_kind_that_the_token_may_not_list_is_named_and_not_shown():
    feeds = Feeds(View(""), views=9)
    broken = [Problem(RAY, "secret of the server", is_rejected=True), Problem(JOB, "away", is_rejected=False)]
    feeds.update([lane("team-a", "a"), lane("team-a", "b", JOB)], broken, NOON)
    found = await feeds.of(View("team-a", frozenset({JOB}))).snapshot(60)
    assert [each["name"] for each in found["items"]] == ["b"]
    assert [(each["kind"], each["message"]) for each in found["problems"]] == [
        (JOB, "away"),
        (RAY, "the token may not list them"),
    ]


async def test_the_history_began_before_the_first_caller_came():
    feeds = Feeds(View(""), views=9)
    feeds.update([lane("team-a", "a")], [], NOON)
    feeds.update([Lane(RAY, "team-a", "a", 4, 4, Verdict.NOTHING_MISSING)], [], after(60))
    (item,) = (await feeds.of(View("team-a")).snapshot(900))["items"]
    assert [(at - START, ready) for at, _, ready, _ in item["steps"]] == [(0, 1), (60, 4)]


def test_a_view_that_no_page_follows_ends_and_that_of_everything_does_not():
    feeds = Feeds(View(""), views=2)
    feed = feeds.of(View("team-a"))
    for at in range(IDLE_UPDATES):
        feeds.update([], [], after(at))
    assert feeds.of(View("team-a")) is feed
    for at in range(IDLE_UPDATES + 1):
        feeds.update([], [], after(100 + at))
    assert feeds.of(View("team-a")) is not feed
    assert len(feeds._feeds) == 2


def test_the_number_of_views_is_bounded_and_those_that_are_followed_stay():
    feeds = Feeds(View(""), views=3)
    followed = feeds.of(View("a"))
    reader = followed.subscribe(lambda: None)
    for name in "bcdefg":
        feeds.of(View(name))
    assert len(feeds._feeds) == 3
    assert feeds.of(View("a")) is followed
    feeds.of(View("z")).subscribe(lambda: None)
    with pytest.raises(TooManyReadersError):
        feeds.of(View("y"))
    followed.unsubscribe(reader)
    feeds.of(View("y"))


names = st.sampled_from(["amber", "birch", "cedar", "denim"])
drawn_lanes = st.lists(
    st.builds(
        lambda kind, namespace, name, groups, receiver: lane(
            f"ns-{namespace}", f"{kind}-{namespace}-{name}", kind, message=f"for ns-{namespace}",
            groups=tuple(GroupSize(f"group-{namespace}-{each}", 1, 0) for each in range(groups)),
            resizes=(Resized(START, 4, 2, receiver and f"ns-{receiver}/x-{receiver}", (f"uid-ns-{receiver}-{kind}-{receiver}-{name}",)),),
        ),
        st.sampled_from(sorted(BOTH)), names, st.sampled_from(["one", "two"]), st.integers(0, 2), names,
    ),
    max_size=12, unique_by=lambda each: (each.kind, each.namespace, each.name),
)  # fmt: skip


@explored()
@given(before=drawn_lanes, now=drawn_lanes, namespace=names, kinds=st.sampled_from([BOTH, frozenset({JOB})]))
async def test_no_byte_of_a_view_names_another_namespace(before, now, namespace, kinds):
    feeds = Feeds(View(""), views=9)
    feeds.update(before, [], NOON)
    feed = feeds.of(View(f"ns-{namespace}", kinds))
    reader = feed.subscribe(lambda: None)
    shown = json.dumps(await feed.snapshot(60))
    feeds.update(now, [], after(1))
    shown += json.dumps(await feed.snapshot(60))
    while not reader.queue.empty():
        shown += reader.queue.get_nowait().decode()
    mine = [each for each in now if each.namespace == f"ns-{namespace}" and each.kind in kinds]
    assert all(each.name in shown for each in mine)
    for other in {"amber", "birch", "cedar", "denim"} - {namespace}:
        assert other not in shown


# --- HTTP ------------------------------------------------------------------------------------------------------------------


async def test_it_is_ready_when_there_is_something_to_show_and_healthy_before():
    site = CallersSite(RightsServer(**RIGHTS))
    async with site.served():
        for path, status in (("/healthz", 200), ("/readyz", 503)):
            async with site.session.get(path) as answer:
                assert answer.status == status
        site.feeds.update([], [], NOON)
        async with site.session.get("/readyz") as answer:
            assert answer.status == 200


async def test_a_caller_sees_its_namespace_and_the_page_asks_for_a_token():
    site = CallersSite(RightsServer(**RIGHTS))
    site.feeds.update([lane("team-a", "mine"), lane("team-b", "secret")], [], NOON)
    async with site.served():
        status, found = await site.get("/api/lanes?namespace=team-a", "dev")
        assert (status, [each["name"] for each in found["items"]], "secret" in json.dumps(found)) == (
            200,
            ["mine"],
            False,
        )
        assert (await site.get("/api/lanes?namespace=team-b", "dev"))[0] == 403
        assert (await site.get("/api/lanes", "dev"))[0] == 403
        assert len((await site.get("/api/lanes", "admin"))[1]["items"]) == 2
        status, found = await site.get("/api/lanes?namespace=team-a", "expired")
        assert (status, found) == (
            401,
            {"error": "the API server does not accept the token: it is wrong or has expired; sign in with another one"},
        )
        assert (await site.get("/api/groups/RayCluster/team-b/secret?namespace=team-a", "dev"))[0] == 404
        async with site.session.get("/") as answer:
            assert 'data-sign-in="form"' in await answer.text()
        async with site.session.get("/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")


async def test_an_explanation_and_a_plan_are_read_with_the_token_of_the_caller():
    site = CallersSite(
        RightsServer(cluster_object(), job_object("job"), node(), dev=dev("default"), admin={EVERYTHING})
    )
    yaml = {"method": "POST", "data": NEW, "headers": {"Content-Type": "application/yaml"}}
    async with site.served():
        status, found = await site.get("/api/why/RayCluster/default/demo?namespace=default", "dev")
        assert (status, found["object"]["name"]) == (200, "demo")
        status, found = await site.get("/api/why/RayCluster/kube-system/demo?namespace=default", "dev")
        assert (status, found) == (
            404,
            {"error": "RayCluster kube-system/demo cannot be read: cannot list rayclusters"},
        )
        status, found = await site.get("/api/plan?namespace=default", "dev", **yaml)
        assert (status, "cannot list" in found["error"]) == (403, True)
        yaml["headers"] = {"Content-Type": "application/yaml"}
        status, found = await site.get("/api/plan?namespace=default", "admin", **yaml)
        assert (status, found["submitted"][0]["name"]) == (200, "new")
    assert set(site.server.opened) == {"dev", "admin"}


async def test_a_stream_ends_when_the_right_does():
    site = CallersSite(RightsServer(**{**RIGHTS, "dev": dev("team-a")}))
    site.feeds.update([lane("team-a", "mine")], [], NOON)
    async with site.served():
        address, headers = "/api/events?namespace=team-a", {"Authorization": "Bearer dev"}
        async with site.session.get(address, headers=headers) as answer:
            assert (await answer.content.readuntil(b"\n\n")).startswith(b"event: lanes")
            site.feeds.update([lane("team-a", "second")], [], after(1))
            assert b"second" in await answer.content.readuntil(b"\n\n")
            site.server.rights["dev"] = set()
            site.access._answers.clear()  # half a minute later
            site.feeds.update([lane("team-a", "third")], [], after(2))
            assert await asyncio.wait_for(answer.content.read(), 10 * PATIENCE) == b""


async def test_a_stream_stays_while_the_api_server_is_away():
    site = CallersSite(RightsServer(**RIGHTS))
    site.feeds.update([lane("team-a", "mine")], [], NOON)
    async with site.served():
        headers = {"Authorization": "Bearer dev"}
        async with site.session.get("/api/events?namespace=team-a", headers=headers) as answer:
            await answer.content.readuntil(b"\n\n")
            site.server.is_away = True
            site.access._answers.clear()
            site.feeds.update([lane("team-a", "second")], [], after(1))
            assert b"second" in await asyncio.wait_for(answer.content.readuntil(b"\n\n"), 10 * PATIENCE)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param(
            {"Host": "raytide.example", "Origin": "https://raytide.example"}, 200, id="behind an ingress with TLS"
        ),
        pytest.param({"Host": "raytide.example", "Origin": "https://attacker.example"}, 403, id="another site"),
        pytest.param({"Host": "raytide.example", "Origin": "https://raytide.example:1"}, 403, id="another port"),
    ],
)
async def test_which_origins_are_answered(headers, status):
    async with CallersSite(RightsServer(**RIGHTS)).served() as site:
        assert (await site.get("/api/lanes", "admin", headers=headers))[0] == status
