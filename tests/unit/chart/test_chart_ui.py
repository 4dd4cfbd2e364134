"""Rendered chart with the page: its rights, who reaches it, and values that contradict each other. Needs helm, no cluster."""

from collections import Counter

import pytest
from click.testing import CliRunner

import raytide.cli
from unit.chart.test_chart import NAMESPACED, TENANT, args, ask_helm, check_restricted, granted, is_of_page, rendered

pytestmark = [pytest.mark.helm, pytest.mark.rule("SE:C6"), pytest.mark.rule("FD:SEC-F7")]

UI = {"ui": {"enabled": True}}
READS = Counter(
    (group, resource, verb)
    for group, resource in (("ray.io", "rayclusters"), ("paddlepaddle.org", "trainingjobs"))
    for verb in ("list", "watch")
)
CAPACITY = Counter(("", resource, verb) for resource in ("nodes", "pods") for verb in ("list", "watch"))
FROM = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}]


def page(values, kind):
    return [obj for obj in rendered({**UI, **values}) if obj["kind"] == kind and is_of_page(obj)]


def container(values):
    (deployment,) = page(values, "Deployment")
    return deployment["spec"]["template"]["spec"]["containers"][0]


def test_it_is_not_there_unless_asked_for():
    assert not any(is_of_page(obj) for obj in rendered({}))


@pytest.mark.parametrize(
    ("values", "cluster", "roles"),
    [
        pytest.param({}, [READS + CAPACITY], {}, id="all namespaces"),
        pytest.param({"rbac": {"readNodes": False}}, [READS], {}, id="without nodes"),
        pytest.param(NAMESPACED, [CAPACITY], {"team-a": READS, "team-b": READS}, id="two namespaces"),
        pytest.param({"singleNamespaceInstall": True}, [], {"ops": READS}, id="a single namespace"),
        pytest.param({"rbac": {"create": False}}, [], {}, id="without RBAC"),
    ],
)
def test_its_account_may_only_list_and_watch_what_it_draws(values, cluster, roles):
    assert [granted(role) for role in page(values, "ClusterRole")] == cluster
    assert {role["metadata"]["namespace"]: granted(role) for role in page(values, "Role")} == roles
    (account,) = page(values, "ServiceAccount")
    bindings = page(values, "ClusterRoleBinding") + page(values, "RoleBinding")
    assert len(bindings) == len(cluster) + len(roles)
    subject = {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "ops"}
    assert all(binding["subjects"] == [subject] for binding in bindings)
    (deployment,) = page(values, "Deployment")
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "raytide-ui"


@pytest.mark.parametrize("values", [{}, {"ui": {"enabled": True, "tlsSecret": "tls"}}], ids=["http", "https"])
def test_its_pod_is_restricted_and_its_probes_reach_it(values):
    (deployment,) = page(values, "Deployment")
    check_restricted(deployment["spec"]["template"]["spec"])
    has_tls = bool(values)
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container(values)[probe]["httpGet"] == {
            "path": path,
            "port": "ui",
            "scheme": "HTTPS" if has_tls else "HTTP",
        }
    assert ("--tls-cert-file=/etc/raytide-ui/tls/tls.crt" in container(values)["args"]) is has_tls


@pytest.mark.parametrize(
    "values",
    [
        {},
        NAMESPACED,
        {"sharing": {"maxLoad": {"cpu": 90}, "gpuResources": ["example.com/gpu"], "tenants": [TENANT]}},
    ],
    ids=["as it comes", "two namespaces", "sharing"],
)
def test_its_arguments_are_accepted_and_those_of_sharing_are_the_operators(values, tmp_path):
    used = container(values)["args"]
    assert used[:2] == ["ui", "--auth=kubernetes"]
    result = CliRunner().invoke(raytide.cli.main, [*used, "--kubeconfig", str(tmp_path / "none")])
    assert (result.exit_code, "does not exist" in result.output) == (1, True), result.output
    shared = ("--max-load", "--gpu", "--rebalance", "--victims", "--reservation", "--tenants", "--watch-namespace")
    assert [word for word in used if word.startswith(shared)] == sorted(
        (word for word in args(values) if word.startswith(shared)), key=used.index
    )


def test_its_selectors_select_its_pod_only():
    objects = rendered(UI)
    pods = {
        obj["metadata"]["name"]: obj["spec"]["template"]["metadata"]["labels"]
        for obj in objects
        if obj["kind"] in ("Deployment", "Job")
    }
    for obj in objects:
        found = obj["spec"].get("selector", obj["spec"].get("podSelector")) if "spec" in obj else None
        selector = (found or {}).get("matchLabels", found)
        if selector and not isinstance(next(iter(selector.values())), dict):
            selected = [name for name, labels in pods.items() if selector.items() <= labels.items()]
            assert ("raytide-ui" in selected) == is_of_page(obj), obj["metadata"]["name"]
            assert len(selected) <= 1


def policy(values):
    (found,) = page(values, "NetworkPolicy")
    return found["spec"]


def test_only_those_that_are_named_reach_it():
    assert policy({})["policyTypes"] == ["Ingress"]
    assert "ingress" not in policy({})
    named = policy({"networkPolicy": {"uiFrom": FROM, "apiServer": ["10.96.0.1/32"]}})
    assert named["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8250}], "from": FROM}]
    assert named["egress"] == [
        {
            "ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}],
            "to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}],
        }
    ]
    assert page({"networkPolicy": {"enabled": False}}, "NetworkPolicy") == []


def test_an_ingress_has_tls_and_leads_to_the_service():
    ingress = {"enabled": True, "host": "raytide.example", "className": "nginx", "tlsSecret": "cert"}
    values = {"ui": {"enabled": True, "ingress": ingress}, "networkPolicy": {"uiFrom": FROM}}
    (found,) = page(values, "Ingress")
    assert found["spec"]["tls"] == [{"hosts": ["raytide.example"], "secretName": "cert"}]
    (service,) = page(values, "Service")
    backend = found["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert (backend["name"], backend["port"]["number"]) == (
        service["metadata"]["name"],
        service["spec"]["ports"][0]["port"],
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ui": {"enabled": True, "ingress": {"enabled": True}}}, "ui.ingress.host: required"),
        (
            {"ui": {"enabled": True, "ingress": {"enabled": True, "host": "a.example"}}},
            "networkPolicy.uiFrom: no pod may reach the page",
        ),
        ({"ui": {"enabled": True, "port": 80}}, "/ui/port"),
        ({"ui": {"enable": True}}, "enable"),
        ({"ui": {"enabled": True, "bindAddress": "any where"}}, "/ui/bindAddress"),
    ],
)
def test_what_cannot_be_is_rejected_with_its_name(values, message):
    answer = ask_helm("template", "raytide", values=values)
    assert answer.returncode != 0
    assert message in answer.stderr
