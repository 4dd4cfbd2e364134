"""Rendered chart: permissions, pod security, names, rejected values. Needs helm, no cluster."""

import json
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

import pytest
import yaml

from kube_tools import find_tool
from raytide.api import constants
from raytide.api.rbac_rules import PERMISSIONS, Scope, Triple, permissions_for, permissions_in, triples_of

pytestmark = pytest.mark.helm

CHART = Path(__file__).parents[3] / "helm" / "raytide"
KUBERNETES = "1.35.0"
HIGHLY_AVAILABLE = {"replicas": 2}
TENANT = {"name": "a", "nominalQuota": {"cpu": 4, "nvidia.com/gpu": "8"}, "weight": 2}
NAMESPACED = {"watchNamespaces": ["team-a", "team-b"]}
EVERYTHING = {
    "replicas": 3,
    "networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]},
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "pull"}],
    "featureGates": {"RayMultiHostIndexing": False, "RayJobDeletionPolicy": True},
    "sharing": {"maxLoad": {"cpu": 90}, "gpuResources": ["example.com/gpu"]},
    "trainingJob": {"etcdImage": "registry.example/etcd:1"},
    "env": [{"name": "CLUSTER_DOMAIN", "value": "example.org"}],
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "platform"},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "serviceAccount": {"name": "someone", "annotations": {"c": "d"}},
}
SETTINGS = [
    pytest.param({}, id="as it comes"),
    pytest.param(NAMESPACED, id="for two namespaces"),
    pytest.param(HIGHLY_AVAILABLE, id="highly available"),
    pytest.param(EVERYTHING, id="with everything set"),
]


def ask_helm(*arguments, values):
    settings = ("--namespace", "ops", "--kube-version", KUBERNETES, "--values", "-")
    command = [find_tool("helm"), *arguments, str(CHART), *settings]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=30, check=False)


def rendered(values, release="raytide", *, served=()):
    """`served`: what the API server has besides what helm takes for granted."""
    more = [word for each in served for word in ("--api-versions", each)]
    answer = ask_helm("template", release, *more, values=values)
    assert answer.returncode == 0, answer.stderr
    return [obj for obj in yaml.safe_load_all(answer.stdout) if obj]


def of_kind(kind, objects):
    return [obj for obj in objects if obj["kind"] == kind]


def deployment(values):
    (found,) = of_kind("Deployment", rendered(values))
    return found


def pod(values):
    return deployment(values)["spec"]["template"]["spec"]


def args(values):
    return pod(values)["containers"][0]["args"]


def granted(role):
    return Counter(
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def table(*scopes, mode="raytide", has_tenants=False):
    rows = permissions_for(mode, has_tenants=has_tenants)
    return Counter(triples_of(p for scope in scopes for p in permissions_in(scope) if p in rows))


def test_the_package_has_the_crds_as_files(tmp_path):
    command = [find_tool("helm"), "package", str(CHART), "--destination", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    (package,) = tmp_path.iterdir()
    crds = Path(__file__).parents[3] / "crds"
    with tarfile.open(package) as files:
        found = {Path(m.name).name: files.extractfile(m).read() for m in files if "/crds/" in m.name and m.isreg()}
    assert found == {path.name: path.read_bytes() for path in crds.iterdir()}


@pytest.mark.parametrize("values", SETTINGS)
def test_lint_finds_nothing(values):
    answer = ask_helm("lint", "--strict", values=values)
    assert answer.returncode == 0, answer.stdout
    assert "[WARNING]" not in answer.stdout


# --- rights --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("SE:C6")
def test_all_namespaces_take_one_cluster_role_with_the_table():
    (role,) = of_kind("ClusterRole", rendered({}))
    assert granted(role) == table(Scope.WATCHED, Scope.CLUSTER)


@pytest.mark.rule("SE:C6")
def test_only_where_rays_autoscaler_is_the_rule_may_the_operator_pass_on_to_write_to_pods():
    (role,) = of_kind("ClusterRole", rendered({"autoscaler": {"mode": "ray"}}))
    assert granted(role) == table(Scope.WATCHED, Scope.CLUSTER, mode="ray")


@pytest.mark.rule("SE:C6", "D25")
def test_only_with_tenants_may_the_operator_read_namespaces():
    (role,) = of_kind("ClusterRole", rendered({"sharing": {"tenants": [TENANT]}}))
    assert granted(role) - table(Scope.WATCHED, Scope.CLUSTER) == Counter(
        (Triple("", "namespaces", "list"), Triple("", "namespaces", "watch"))
    )
    assert granted(role) == table(Scope.WATCHED, Scope.CLUSTER, has_tenants=True)


@pytest.mark.rule("SE:C6")
def test_two_namespaces_take_a_role_in_each_and_a_cluster_role_for_nodes_and_what_is_on_them():
    objects = rendered(NAMESPACED)
    roles = {role["metadata"]["namespace"]: role for role in of_kind("Role", objects)}
    assert set(roles) == {"ops", "team-a", "team-b"}
    assert granted(roles["team-a"]) == granted(roles["team-b"]) == table(Scope.WATCHED)
    assert [granted(role) for role in of_kind("ClusterRole", objects)] == [table(Scope.CLUSTER, Scope.EVERYWHERE)]


def test_two_namespaces_without_nodes_take_nothing_of_the_cluster():
    objects = rendered({**NAMESPACED, "rbac": {"readNodes": False}})
    assert of_kind("ClusterRole", objects) + of_kind("ClusterRoleBinding", objects) == []
    assert all(obj["metadata"]["namespace"] for obj in objects)


def test_the_role_for_the_lease_is_in_the_operators_own_namespace():
    (role,) = of_kind("Role", rendered({}))
    assert (role["metadata"]["namespace"], granted(role)) == ("ops", table(Scope.OWN))


def test_without_leader_election_the_chart_grants_no_access_to_leases():
    objects = rendered({"leaderElection": {"enabled": False}})
    assert of_kind("Role", objects) + of_kind("RoleBinding", objects) == []


def test_without_rbac_there_are_no_roles():
    kinds = {obj["kind"] for obj in rendered({"rbac": {"create": False}})}
    assert kinds == {"ServiceAccount", "Service", "Deployment", "Lease"}


@pytest.mark.rule("SE:C6")
@pytest.mark.parametrize("values", SETTINGS)
def test_rights_are_few_and_plain(values):
    roles = [obj for obj in rendered(values) if obj["kind"] in ("Role", "ClusterRole")]
    for namespace in {role["metadata"].get("namespace") for role in roles}:
        here = sum(
            (granted(role) for role in roles if role["metadata"].get("namespace") in (None, namespace)), Counter()
        )
        assert 0 < len(here) <= 60
        twice = {Triple(*triple) for triple, times in here.items() if times > 1}
        assert twice <= triples_of(permissions_in(Scope.EVERYWHERE))
        arguments = {word for triple in here for word in triple}
        assert arguments.isdisjoint({"*", "secrets", "escalate", "bind", "impersonate", "pods/exec", "pods/proxy"})
        assert set(here) <= set(triples_of(PERMISSIONS))


@pytest.mark.parametrize("values", SETTINGS)
def test_every_binding_binds_a_role_that_is_there_to_the_pods_service_account(values):
    objects = rendered(values)
    there = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects}
    account = {"kind": "ServiceAccount", "name": pod(values)["serviceAccountName"], "namespace": "ops"}
    bindings = [obj for obj in objects if obj["kind"].endswith("Binding")]
    for binding in bindings:
        role = binding["roleRef"]
        assert (role["kind"], binding["metadata"].get("namespace"), role["name"]) in there
        assert binding["subjects"] == [account]
    assert len(bindings) == len([o for o in objects if o["kind"] in ("Role", "ClusterRole")])
    assert ("ServiceAccount", "ops", account["name"]) in there


# --- the pod -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("SE:C5")
@pytest.mark.parametrize("values", SETTINGS)
def test_the_pod_is_restricted(values):
    spec = pod(values)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert all("projected" in volume for volume in spec["volumes"])
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert not any("hostPort" in port for port in container["ports"])


@pytest.mark.rule("SE:C22")
def test_the_token_is_a_projected_volume_that_expires_after_an_hour():
    spec = pod({})
    (account,) = of_kind("ServiceAccount", rendered({}))
    assert spec["automountServiceAccountToken"] is account["automountServiceAccountToken"] is False
    tokens = [
        s["serviceAccountToken"]
        for v in spec["volumes"]
        for s in v["projected"]["sources"]
        if len(s) == 1 and "serviceAccountToken" in s
    ]
    assert tokens == [{"path": "token", "expirationSeconds": 3600}]


def test_the_pods_name_namespace_and_uid_are_variables():
    env = {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in pod({})["containers"][0]["env"]}
    assert env == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid"}


def test_probes_use_the_health_port():
    (container,) = pod({"health": {"port": 9000}})["containers"]
    asked = {
        (container[p]["httpGet"]["path"], container[p]["httpGet"]["port"]) for p in ("livenessProbe", "readinessProbe")
    }
    assert asked == {("/healthz", "health"), ("/readyz", "health")}
    assert {"name": "health", "containerPort": 9000} in container["ports"]
    assert "--health-probe-bind-address=:9000" in container["args"]


POLICY = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"


@pytest.mark.rule("FD:SEC-F8")
@pytest.mark.parametrize(
    ("values", "served", "is_there"),
    [
        pytest.param({}, (POLICY,), True, id="as it comes"),
        pytest.param({}, (), False, id="an API server without such policies"),
        pytest.param({"autoscaler": {"admissionPolicy": False}}, (POLICY,), False, id="switched off"),
        pytest.param({"rbac": {"create": False}}, (POLICY,), False, id="with the other rules of access"),
        pytest.param(NAMESPACED, (POLICY,), True, id="for two namespaces"),
        pytest.param({**NAMESPACED, "rbac": {"readNodes": False}}, (POLICY,), False, id="nothing cluster-wide"),
    ],
)
def test_autoscalers_are_held_to_their_fields_where_the_api_server_can(values, served, is_there):
    objects = rendered(values, served=served)
    policies = of_kind("ValidatingAdmissionPolicy", objects)
    bindings = of_kind("ValidatingAdmissionPolicyBinding", objects)
    assert (len(policies), len(bindings)) == (is_there, is_there)
    if is_there:
        assert bindings[0]["spec"]["policyName"] == policies[0]["metadata"]["name"]
        assert bindings[0]["spec"]["validationActions"] == ["Deny"]
        expressions = bindings[0]["spec"].get("matchResources", {}).get("namespaceSelector", {}).get("matchExpressions")
        assert [each["values"] for each in expressions or ()] == (
            [["team-a", "team-b"]] if "watchNamespaces" in values else []
        )


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        pytest.param(NAMESPACED, "--watch-namespace=team-a,team-b", id="namespaces"),
        pytest.param({"reconcileConcurrency": 16}, "--reconcile-concurrency=16", id="concurrency"),
        pytest.param({"logLevel": "debug"}, "--log-level=debug", id="log level"),
        pytest.param({"metrics": {"enabled": False}}, "--metrics-addr=0", id="no metrics"),
        pytest.param({"leaderElection": {"enabled": False}}, "--enable-leader-election=false", id="no election"),
        pytest.param(
            {"leaderElection": {"leaseDuration": "15s"}}, "--leader-election-lease-duration=15s", id="lease duration"
        ),
        pytest.param({"autoscaler": {"mode": "ray"}}, "--autoscaler-mode=ray", id="Ray's autoscaler"),
        pytest.param(
            {"image": {"tag": "7"}}, "--autoscaler-image=ghcr.io/raytide/raytide:7", id="the operator's image"
        ),
        pytest.param({"autoscaler": {"image": "r/a:1"}}, "--autoscaler-image=r/a:1", id="an image of its own"),
        pytest.param({"trainingJob": {"etcdImage": "r/etcd:1"}}, "--etcd-image=r/etcd:1", id="etcd's image"),
        pytest.param({"stateTracksReadiness": True}, "--state-tracks-readiness=true", id="a state that leaves ready"),
        pytest.param({"sharing": {"period": "10s"}}, "--sharing-period=10s", id="how often jobs share"),
        pytest.param(
            {"sharing": {"maxLoad": {"memory": 95, "cpu": 90}}},
            "--max-load=cpu=90,memory=95",
            id="capacity that stays free",
        ),
        pytest.param(
            {"sharing": {"gpuResources": ["a.b/gpu", "c.d/gpu"]}}, "--gpu-resources=a.b/gpu,c.d/gpu", id="what GPUs are"
        ),
        pytest.param({"sharing": {"rebalanceGap": "0.2"}}, "--rebalance-gap=0.2", id="when rebalancing starts"),
        pytest.param({"sharing": {"victimsPerTrainer": 2}}, "--victims-per-trainer=2", id="how many victims"),
        pytest.param({"sharing": {"reservationPeriod": "0s"}}, "--reservation-period=0s", id="no reservations"),
        pytest.param(
            {"sharing": {"tenants": [TENANT]}},
            '--tenants=[{"name":"a","nominalQuota":{"cpu":4,"nvidia.com/gpu":"8"},"weight":2}]',
            id="tenants",
        ),
        pytest.param(EVERYTHING, "--feature-gates=RayJobDeletionPolicy=true,RayMultiHostIndexing=false", id="gates"),
    ],
)
def test_a_value_becomes_a_flag_and_so_rolls_the_pods(values, flag):
    assert flag in args(values)
    assert flag not in args({})


def test_every_flag_is_one_that_the_operator_has():
    from raytide.cli.operator import command

    known = {word for param in command.params for word in param.opts}
    used = {word.partition("=")[0] for word in [*args(EVERYTHING), *args(NAMESPACED)] if word.startswith("--")}
    assert used <= known


def test_a_digest_replaces_the_tag():
    assert pod(EVERYTHING)["containers"][0]["image"] == "ghcr.io/raytide/raytide@sha256:" + "0" * 64
    assert (
        pod({"image": {"repository": "r.example:5000/raytide", "tag": "7"}})["containers"][0]["image"]
        == "r.example:5000/raytide:7"
    )


def test_what_is_set_reaches_the_pod():
    template = deployment(EVERYTHING)["spec"]["template"]
    spec = template["spec"]
    assert template["metadata"]["labels"]["team"] == "platform"
    assert template["metadata"]["annotations"]["a"] == "b"
    assert {"name": "CLUSTER_DOMAIN", "value": "example.org"} in spec["containers"][0]["env"]
    assert spec["priorityClassName"] == "system-cluster-critical"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["affinity"] == {"nodeAffinity": {}}


# --- replicas ------------------------------------------------------------------------------------------------------------


def test_one_replica_is_rolled_without_a_gap_and_has_no_budget():
    assert deployment({})["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    assert of_kind("PodDisruptionBudget", rendered({})) == []
    assert "topologySpreadConstraints" not in pod({})


def test_without_leader_election_there_are_never_two():
    assert deployment({"leaderElection": {"enabled": False}})["spec"]["strategy"] == {"type": "Recreate"}


def test_two_replicas_have_a_budget_and_spread_over_hosts():
    (budget,) = of_kind("PodDisruptionBudget", rendered(HIGHLY_AVAILABLE))
    selector = deployment(HIGHLY_AVAILABLE)["spec"]["selector"]
    assert budget["spec"] == {"maxUnavailable": 1, "selector": selector}
    assert pod(HIGHLY_AVAILABLE)["topologySpreadConstraints"] == [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector,
        }
    ]


def test_custom_spread_constraints_replace_the_default_and_get_the_selector():
    selector = deployment({})["spec"]["selector"]
    assert pod(EVERYTHING)["topologySpreadConstraints"] == [
        {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    ]


def test_the_lease_has_the_name_that_replicas_use_and_no_holder():
    (lease,) = of_kind("Lease", rendered(HIGHLY_AVAILABLE))
    assert (lease["metadata"]["name"], lease["metadata"]["namespace"]) == (constants.LEADER_LEASE, "ops")
    assert "spec" not in lease
    assert of_kind("Lease", rendered({"leaderElection": {"enabled": False}})) == []


# --- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", SETTINGS)
@pytest.mark.parametrize("release", ["raytide", "x", "a" * 53])
def test_names_fit_and_selectors_select_the_pods(values, release):
    objects = rendered(values, release)
    assert all(len(obj["metadata"]["name"]) <= 63 + len("ops-") for obj in objects)
    (operator,) = of_kind("Deployment", objects)
    labels = operator["spec"]["template"]["metadata"]["labels"]
    assert all(len(value) <= 63 for value in labels.values())
    for selector in (
        operator["spec"]["selector"]["matchLabels"],
        *(service["spec"]["selector"] for service in of_kind("Service", objects)),
        *(policy["spec"]["podSelector"]["matchLabels"] for policy in of_kind("NetworkPolicy", objects)),
    ):
        assert selector.items() <= labels.items()


def test_two_releases_of_one_name_in_two_namespaces_do_not_meet():
    outside = [o["metadata"]["name"] for o in rendered({}) if not o["metadata"].get("namespace")]
    assert outside
    assert all(name.startswith("ops-") for name in outside)


# --- network and metrics -------------------------------------------------------------------------------------------------


def test_the_network_policy_lets_in_probes_and_the_chosen_scraper():
    (policy,) = of_kind("NetworkPolicy", rendered(EVERYTHING))
    health, metrics = policy["spec"]["ingress"]
    assert (health["ports"][0]["port"], "from" in health) == (8082, False)
    assert (metrics["ports"][0]["port"], metrics["from"]) == (8080, EVERYTHING["networkPolicy"]["metricsFrom"])
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_without_metrics_there_is_no_service_and_no_monitor():
    kinds = {obj["kind"] for obj in rendered({"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}})}
    assert kinds.isdisjoint({"Service", "ServiceMonitor"})


def test_the_service_monitor_finds_the_service():
    objects = rendered(EVERYTHING)
    (monitor,), (service,) = of_kind("ServiceMonitor", objects), of_kind("Service", objects)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


# --- wrong values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "path"),
    [
        pytest.param({"replicass": 2}, "replicass", id="a name that does not exist"),
        pytest.param({"watchNamespace": ["a"]}, "watchNamespace", id="a name of KubeRay's chart"),
        pytest.param({"image": {"tagg": "1"}}, "/image", id="a name that does not exist, deeper"),
        pytest.param({"image": {"tag": 1}}, "/image/tag", id="a number for a tag"),
        pytest.param({"image": {"digest": "sha256:1"}}, "/image/digest", id="half a digest"),
        pytest.param(
            {"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy", id="a pull policy that does not exist"
        ),
        pytest.param({"replicas": -1}, "/replicas", id="fewer than no replicas"),
        pytest.param({"replicas": 2, "leaderElection": {"enabled": False}}, "/replicas", id="two without an election"),
        pytest.param({"reconcileConcurrency": 0}, "/reconcileConcurrency", id="no worker"),
        pytest.param({"logLevel": "loud"}, "/logLevel", id="a log level that does not exist"),
        pytest.param({"watchNamespaces": "a,b"}, "/watchNamespaces", id="a string for a list"),
        pytest.param({"watchNamespaces": ["a", "A_B"]}, "/watchNamespaces/1", id="no name of a namespace"),
        pytest.param({"watchNamespaces": ["a", "a"]}, "/watchNamespaces", id="a namespace twice"),
        pytest.param({"featureGates": {"Foo": True}}, "/featureGates", id="a gate that does not exist"),
        pytest.param({"featureGates": {"KubernetesWAS": True}}, "/featureGates/KubernetesWAS", id="a gate not built"),
        pytest.param({"env": [{"value": "x"}]}, "/env/0", id="a variable without a name"),
        pytest.param({"resources": {"limits": {"memory": "1 GB"}}}, "/resources/limits/memory", id="no quantity"),
        pytest.param({"metrics": {"port": 80}}, "/metrics/port", id="a port only root may open"),
        pytest.param(
            {"terminationGracePeriodSeconds": 5}, "/terminationGracePeriodSeconds", id="no time to end in order"
        ),
        pytest.param(
            {"leaderElection": {"retryPeriod": 4}}, "/leaderElection/retryPeriod", id="seconds without a unit"
        ),
        pytest.param({"autoscaler": {"mode": "v2"}}, "/autoscaler/mode", id="an autoscaler that does not exist"),
        pytest.param({"sharing": {"maxLoad": {"cpu": 101}}}, "/sharing/maxLoad/cpu", id="more than the capacity"),
        pytest.param({"sharing": {"rebalanceGap": "1.5"}}, "/sharing/rebalanceGap", id="a gap of more than all"),
        pytest.param({"sharing": {"rebalanceGap": "3/2"}}, "/sharing/rebalanceGap", id="a gap of three halves"),
        pytest.param({"sharing": {"reservationPeriod": "500ms"}}, "/sharing/reservationPeriod", id="half a second"),
        pytest.param({"sharing": {"tenants": [{"weight": 1}]}}, "/sharing/tenants/0", id="a tenant without a name"),
        pytest.param(
            {"sharing": {"tenants": [{"name": "a", "weight": -1}]}}, "/sharing/tenants/0/weight", id="a weight below 0"
        ),
        pytest.param(
            {"sharing": {"tenants": [{"name": "a", "parent": "b"}]}}, "/sharing/tenants/0", id="a tenant with a parent"
        ),
        pytest.param({"sharing": {"victimsPerTrainer": 0}}, "/sharing/victimsPerTrainer", id="no victims"),
        pytest.param({"sharing": {"gpuResources": ["gpu"]}}, "/sharing/gpuResources/0", id="a GPU without a domain"),
        pytest.param({"podLabels": {"a": 1}}, "/podLabels/a", id="a label that is a number"),
        pytest.param({"metrics": {"serviceMonitor": {"interval": "30"}}}, "/interval", id="a duration without a unit"),
    ],
)
def test_a_wrong_value_is_rejected_with_its_path(values, path):
    answer = ask_helm("template", "raytide", values=values)
    assert answer.returncode != 0
    assert path in answer.stderr
    assert "schema" in answer.stderr
