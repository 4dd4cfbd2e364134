"""Rendered chart: permissions, pod security, names, rejected values. Needs helm, no cluster."""

import json
import re
import subprocess
import tarfile
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from kube_tools import find_tool
from raytide.api import constants
from raytide.api.meta import RAYCLUSTERS, TRAININGJOBS
from raytide.api.rbac_rules import (
    DEFAULT_FEATURES,
    PERMISSIONS,
    Feature,
    Scope,
    Triple,
    permissions_for,
    permissions_in,
)
from support.deadlines import PATIENCE
from support.permissions import triples_of

pytestmark = pytest.mark.helm

CHART = Path(__file__).parents[3] / "helm" / "raytide"
KUBERNETES = "1.35.0"
AGGREGATED = "rbac.authorization.k8s.io/aggregate-to-"
HIGHLY_AVAILABLE = {"replicas": 2}
POLICY = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
MONITORED = {"networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}]}}
TENANT = {"name": "a", "nominalQuota": {"cpu": 4, "nvidia.com/gpu": "8"}, "weight": 2}
NAMESPACED = {"watchNamespaces": ["team-a", "team-b"]}
EVERYTHING = {
    "replicas": 3,
    "networkPolicy": {
        "metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
        "uiFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}],
        "apiServer": ["10.96.0.1/32", "fd00::1/128"],
        "extraEgress": [{"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "UDP", "port": 53}]}],
    },
    "metrics": {
        "serviceMonitor": {"enabled": True, "namespace": "monitoring", "labels": {"release": "prometheus"}},
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "groups": [{"name": "own", "rules": []}]},
        "dashboards": {"enabled": True, "annotations": {"folder": "Ray"}, "files": {"ray.json": "{}"}},
    },
    "service": {"type": "NodePort", "port": 80},
    "ui": {
        "enabled": True,
        "tlsSecret": "ui-tls",
        "ingress": {"enabled": True, "host": "raytide.example", "className": "nginx"},
    },
    "labels": {"cost-center": "42"},
    "componentOverride": "ray-operator",
    "logFormat": "json",
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "pull"}],
    "featureGates": {"RayMultiHostIndexing": False, "RayJobDeletionPolicy": True},
    "sharing": {"maxLoad": {"cpu": 90}, "gpuResources": ["example.com/gpu"]},
    "trainingJob": {"etcdImage": "registry.example/etcd:1"},
    "extraArgs": ["--log-level=debug"],
    "env": [{"name": "CLUSTER_DOMAIN", "value": "example.org"}],
    "envFrom": [{"configMapRef": {"name": "proxy"}}],
    "extraVolumes": [{"name": "more", "projected": {"sources": []}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more", "readOnly": True}],
    "deploymentAnnotations": {"reloader": "true"},
    "hostUsers": False,
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "platform"},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    "serviceAccount": {"name": "someone", "annotations": {"c": "d"}},
}
ALERT_GROUPS = yaml.safe_load((CHART / "rules" / "raytide.yaml").read_text())["groups"]
DASHBOARDS = {path.name: path.read_text() for path in (CHART / "dashboards").glob("*.json")}
CLUSTERS_ONLY = {"trainingJob": {"enabled": False}}
JOBS_ONLY = {"rayCluster": {"enabled": False}}
SETTINGS = [
    pytest.param({}, id="as it comes"),
    pytest.param(NAMESPACED, id="for two namespaces"),
    pytest.param(HIGHLY_AVAILABLE, id="highly available"),
    pytest.param(EVERYTHING, id="with everything set"),
    pytest.param(CLUSTERS_ONLY, id="RayClusters only"),
    pytest.param(JOBS_ONLY, id="TrainingJobs only"),
    pytest.param({"singleNamespaceInstall": True}, id="in a single namespace"),
]


def ask_helm(*arguments, values):
    settings = ("--namespace", "ops", "--kube-version", KUBERNETES, "--values", "-")
    command = [find_tool("helm"), *arguments, str(CHART), *settings]
    return subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=30 * PATIENCE, check=False
    )


def rendered(values, release="raytide", *, served=()):
    """`served`: what the API server has besides what helm takes for granted."""
    more = [word for each in served for word in ("--api-versions", each)]
    answer = ask_helm("template", release, *more, values=values)
    assert answer.returncode == 0, answer.stderr
    return [obj for obj in yaml.safe_load_all(answer.stdout) if obj]


def of_kind(kind, objects):
    """The objects of the operator: not those of hooks and of the page, and not what users may do."""
    of_others = (is_hook, is_aggregated, is_of_page)
    return [obj for obj in objects if obj["kind"] == kind and not any(is_other(obj) for is_other in of_others)]


def is_of_page(obj):
    return obj["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "ui"


def is_hook(obj):
    return "helm.sh/hook" in obj["metadata"].get("annotations", {})


def is_aggregated(obj):
    return any(label.startswith(AGGREGATED) for label in obj["metadata"].get("labels", {}))


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


def table(*scopes, **settings):
    rows = permissions_for(settings.pop("mode", "raytide"), **settings)
    return Counter(triples_of(p for scope in scopes for p in permissions_in(scope) if p in rows))


def test_the_package_has_the_crds_as_files(tmp_path):
    command = [find_tool("helm"), "package", str(CHART), "--destination", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=30 * PATIENCE)
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
    assert set(granted(role)) == set(table(Scope.WATCHED, Scope.CLUSTER, mode="ray"))


@pytest.mark.rule("SE:C6", "D25")
def test_only_with_tenants_may_the_operator_read_namespaces():
    (role,) = of_kind("ClusterRole", rendered({"sharing": {"tenants": [TENANT]}}))
    assert granted(role) - table(Scope.WATCHED, Scope.CLUSTER) == Counter(
        (Triple("", "namespaces", "list"), Triple("", "namespaces", "watch"))
    )
    assert granted(role) == table(Scope.WATCHED, Scope.CLUSTER, features={*DEFAULT_FEATURES, Feature.TENANTS})


@pytest.mark.rule("SE:C6", "FD:SEC-F10")
@pytest.mark.parametrize(
    ("values", "flag", "settings"),
    [
        pytest.param(CLUSTERS_ONLY, "--controllers=raycluster", {"kinds": (RAYCLUSTERS,)}, id="RayClusters only"),
        pytest.param(JOBS_ONLY, "--controllers=trainingjob", {"kinds": (TRAININGJOBS,)}, id="TrainingJobs only"),
        pytest.param(
            {"autoscaler": {"rbac": False}},
            "--autoscaler-rbac=false",
            {"features": {Feature.REDIS_CLEANUP}},
            id="users create the RBAC objects of autoscalers",
        ),
    ],
)
def test_a_switch_drops_the_rights_that_are_for_it_alone_and_the_operator_honors_it(values, flag, settings):
    (role,) = of_kind("ClusterRole", rendered(values))
    assert granted(role) == table(Scope.WATCHED, Scope.CLUSTER, **settings)
    assert flag in args(values)
    roles = {obj["metadata"]["namespace"]: obj for obj in of_kind("Role", rendered({**NAMESPACED, **values}))}
    assert granted(roles["team-a"]) == table(Scope.WATCHED, **settings)


@pytest.mark.rule("SE:C6", "RC:PVC-2")
@pytest.mark.parametrize("form", ["map", "list"])
def test_only_with_its_feature_gate_may_the_operator_create_volume_claims(form):
    gate = "GCSFaultToleranceEmbeddedStorage"
    on, off = (
        {"featureGates": {gate: is_on} if form == "map" else [{"name": gate, "enabled": is_on}]}
        for is_on in (True, False)
    )
    claims = Counter(Triple("", "persistentvolumeclaims", verb) for verb in ("get", "create", "patch"))
    (role,) = of_kind("ClusterRole", rendered(on))
    assert granted(role) - claims == table(Scope.WATCHED, Scope.CLUSTER)
    assert granted(role) == table(Scope.WATCHED, Scope.CLUSTER, features={*DEFAULT_FEATURES, Feature.EMBEDDED_STORAGE})
    (role,) = of_kind("ClusterRole", rendered(off))
    assert granted(role) == table(Scope.WATCHED, Scope.CLUSTER)


@pytest.mark.rule("SE:C6", "RC:FIN-4")
def test_without_the_clean_up_of_redis_the_operator_has_no_rights_on_jobs_and_is_told():
    off = rendered({"gcsFaultTolerance": {"redisCleanup": False}})
    (role,) = of_kind("ClusterRole", off)
    (default,) = of_kind("ClusterRole", rendered({}))
    jobs = Counter(Triple("batch", "jobs", verb) for verb in ("get", "create"))
    assert (
        granted(role)
        == granted(default) - jobs
        == table(Scope.WATCHED, Scope.CLUSTER, features={Feature.AUTOSCALER_RBAC})
    )
    assert granted(default) & jobs == jobs
    told = {"name": "ENABLE_GCS_FT_REDIS_CLEANUP", "value": "false"}
    assert told in pod({"gcsFaultTolerance": {"redisCleanup": False}})["containers"][0]["env"]
    assert told not in pod({})["containers"][0]["env"]


@pytest.mark.rule("SE:C6")
def test_two_namespaces_take_a_role_in_each_and_a_cluster_role_for_nodes_and_what_is_on_them():
    objects = rendered(NAMESPACED)
    roles = {role["metadata"]["namespace"]: role for role in of_kind("Role", objects)}
    assert set(roles) == {"ops", "team-a", "team-b"}
    assert granted(roles["team-a"]) == granted(roles["team-b"]) == table(Scope.WATCHED)
    assert [granted(role) for role in of_kind("ClusterRole", objects)] == [table(Scope.CLUSTER, Scope.EVERYWHERE)]


@pytest.mark.parametrize(
    ("values", "watched"),
    [
        pytest.param({**NAMESPACED, "rbac": {"readNodes": False}}, {"team-a", "team-b"}, id="without nodes"),
        pytest.param({"singleNamespaceInstall": True}, {"ops"}, id="a single namespace"),
        pytest.param({**NAMESPACED, "singleNamespaceInstall": True}, {"team-a", "team-b"}, id="KubeRay's two values"),
    ],
)
def test_a_namespaced_installation_takes_nothing_of_the_cluster(values, watched):
    objects = rendered(values, served=(POLICY,))
    assert all(obj["metadata"]["namespace"] for obj in objects)
    assert {role["metadata"]["namespace"] for role in of_kind("Role", objects)} == watched | {"ops"}
    assert f"--watch-namespace={','.join(sorted(watched))}" in args(values)


def test_kuberays_gitops_value_omits_the_roles_of_watched_namespaces():
    objects = rendered({"singleNamespaceInstall": True, "crNamespacedRbacEnable": False})
    assert [granted(role) for role in of_kind("Role", objects)] == [table(Scope.OWN)]


@pytest.mark.parametrize(("values", "kinds"), [({}, 2), (CLUSTERS_ONLY, 1), (JOBS_ONLY, 1)], ids=["both", "rc", "tj"])
def test_view_and_edit_of_kubernetes_include_the_kinds(values, kinds):
    roles = {
        label.removeprefix(AGGREGATED): granted(obj)
        for obj in rendered(values)
        for label in obj["metadata"]["labels"]
        if label.startswith(AGGREGATED)
    }
    assert set(roles) == {"view", "edit"}
    main = {(resource, verb) for _, resource, verb in roles["view"] + roles["edit"] if "/" not in resource}
    assert {verb for _, verb in main} == {
        "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
    }  # fmt: skip
    assert len({resource for resource, _ in main}) == kinds
    assert {verb for _, _, verb in roles["view"]} == {"get", "list", "watch"}
    assert {resource for _, resource, _ in roles["edit"] if "/" in resource} <= {"trainingjobs/scale"}
    assert not {"status", "finalizers"} & {resource.partition("/")[2] for _, resource, _ in roles["edit"]}


@pytest.mark.parametrize(
    "values", [{"rbac": {"aggregate": False}}, {"rbac": {"create": False}}], ids=["off", "no RBAC"]
)
def test_view_and_edit_stay_as_they_are_when_asked(values):
    assert not any(is_aggregated(obj) for obj in rendered(values))


def test_the_role_for_the_lease_is_in_the_operators_own_namespace():
    (role,) = of_kind("Role", rendered({}))
    assert (role["metadata"]["namespace"], granted(role)) == ("ops", table(Scope.OWN))


def test_without_leader_election_the_chart_grants_no_access_to_leases():
    objects = rendered({"leaderElection": {"enabled": False}})
    assert of_kind("Role", objects) + of_kind("RoleBinding", objects) == []


def test_without_rbac_there_are_no_roles():
    kinds = {obj["kind"] for obj in rendered({"rbac": {"create": False}}) if not is_hook(obj)}
    assert kinds == {"ServiceAccount", "Service", "Deployment", "Lease", "NetworkPolicy"}
    assert kinds == {obj["kind"] for obj in rendered({"rbacEnable": False}) if not is_hook(obj)}


@pytest.mark.rule("SE:C2", "SE:C6")
@pytest.mark.parametrize("values", SETTINGS)
def test_rights_are_few_and_plain(values):
    objects = rendered(values)
    roles = of_kind("Role", objects) + of_kind("ClusterRole", objects)
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


@pytest.mark.rule("SE:C2")
@pytest.mark.parametrize("values", SETTINGS)
def test_every_binding_binds_a_role_that_is_there_to_the_pods_service_account(values):
    objects = rendered(values)
    there = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects}
    account = {"kind": "ServiceAccount", "name": pod(values)["serviceAccountName"], "namespace": "ops"}
    bindings = of_kind("RoleBinding", objects) + of_kind("ClusterRoleBinding", objects)
    for binding in bindings:
        role = binding["roleRef"]
        assert (role["kind"], binding["metadata"].get("namespace"), role["name"]) in there
        assert binding["subjects"] == [account]
    assert len(bindings) == len(of_kind("Role", objects) + of_kind("ClusterRole", objects))
    assert ("ServiceAccount", "ops", account["name"]) in there


# --- the pod -------------------------------------------------------------------------------------------------------------


def pods_of(objects):
    """Specs of the operator's pod and those of hooks."""
    templates = [obj["spec"]["template"]["spec"] for obj in objects if obj["kind"] in ("Deployment", "Job")]
    return templates + [obj["spec"] for obj in objects if obj["kind"] == "Pod"]


@pytest.mark.rule("SE:C2", "SE:C5")
@pytest.mark.parametrize("values", SETTINGS)
def test_every_pod_is_restricted(values):
    specs = pods_of(rendered(values))
    assert len(specs) >= 2
    for spec in specs:
        check_restricted(spec)


def check_restricted(spec):
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert all("projected" in volume for volume in spec.get("volumes", ()))
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
        assert not any("hostPort" in port for port in container.get("ports", ()))


@pytest.mark.rule("FD:UX-9")
@pytest.mark.parametrize(
    ("values", "served"),
    [
        pytest.param({"openshift": "force"}, (), id="asked for"),
        pytest.param({}, ("security.openshift.io/v1",), id="an OpenShift"),
        pytest.param(
            {
                "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
                "securityContext": {"runAsUser": None},
            },
            (),
            id="omitted by hand",
        ),
    ],
)
def test_openshift_chooses_the_user_and_the_rest_stays_restricted(values, served):
    for spec in pods_of(rendered(values, served=served)):
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        (container,) = spec["containers"]
        assert not {"runAsUser", "runAsGroup"} & set(container["securityContext"])
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_security_contexts_can_be_changed_field_by_field():
    spec = pod(
        {"podSecurityContext": {"runAsUser": 12345}, "securityContext": {"runAsUser": 12345}, "openshift": "disabled"}
    )
    assert spec["securityContext"]["runAsUser"] == spec["containers"][0]["securityContext"]["runAsUser"] == 12345
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


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
        pytest.param(JOBS_ONLY, (POLICY,), False, id="no RayClusters"),
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
        pytest.param({"logFormat": "json"}, "--log-format=json", id="log format"),
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
        pytest.param({"sharing": {"nodeAutoscaler": "present"}}, "--node-autoscaler=present", id="nodes on demand"),
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
    settings = (EVERYTHING, NAMESPACED, CLUSTERS_ONLY, {"autoscaler": {"rbac": False}})
    used = {word.partition("=")[0] for values in settings for word in args(values) if word.startswith("--")}
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
    assert spec["hostUsers"] is False
    assert EVERYTHING["extraVolumes"][0] in spec["volumes"]
    assert EVERYTHING["extraVolumeMounts"][0] in spec["containers"][0]["volumeMounts"]
    assert spec["containers"][0]["envFrom"] == EVERYTHING["envFrom"]
    assert spec["containers"][0]["args"][-1] == "--log-level=debug"
    assert deployment(EVERYTHING)["metadata"]["annotations"] == {"reloader": "true"}


@pytest.mark.parametrize("values", SETTINGS)
def test_common_labels_are_on_every_object_and_pod_and_change_no_selector(values):
    objects = rendered({**values, "labels": {"cost-center": "42", "app.kubernetes.io/component": "mine"}})
    labels = [obj["metadata"]["labels"] for obj in objects]
    labels += [obj["spec"]["template"]["metadata"]["labels"] for obj in objects if obj["kind"] in ("Deployment", "Job")]
    assert all(each["cost-center"] == "42" and each["app.kubernetes.io/instance"] == "raytide" for each in labels)
    assert deployment(values)["spec"]["selector"] == of_kind("Deployment", objects)[0]["spec"]["selector"]


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


def policies(objects):
    """Specs of the NetworkPolicies, by whose pods they are."""
    names = {False: "operator", True: "hooks"}
    return {names[obj["metadata"]["name"].endswith("-hooks")]: obj["spec"] for obj in of_kind("NetworkPolicy", objects)}


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
        policies(objects)["operator"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_two_releases_of_one_name_in_two_namespaces_do_not_meet():
    outside = [o["metadata"]["name"] for o in rendered({}) if not o["metadata"].get("namespace")]
    assert outside
    assert all(name.startswith("ops-") for name in outside)


# --- network and metrics -------------------------------------------------------------------------------------------------


@pytest.mark.rule("FD:SEC-F11", "SE:C21")
def test_by_default_only_helm_test_reaches_the_operator_besides_the_kubelet_and_egress_is_not_limited():
    objects = rendered({})
    policy = policies(objects)["operator"]
    assert policy["policyTypes"] == ["Ingress"]
    (health,) = policy["ingress"]
    assert health["ports"] == [{"protocol": "TCP", "port": 8082}]
    (peer,) = health["from"]
    (tester,) = (obj for obj in objects if obj["kind"] == "Pod")
    assert peer["podSelector"]["matchLabels"].items() <= tester["metadata"]["labels"].items()


@pytest.mark.rule("FD:SEC-F11", "SE:C21")
def test_the_network_policy_admits_the_chosen_scraper_and_lets_out_to_the_api_server():
    policy = policies(rendered(EVERYTHING))["operator"]
    _, metrics = policy["ingress"]
    assert (metrics["ports"][0]["port"], metrics["from"]) == (8080, EVERYTHING["networkPolicy"]["metricsFrom"])
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    to_api, *more = policy["egress"]
    assert to_api == {
        "ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}],
        "to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}, {"ipBlock": {"cidr": "fd00::1/128"}}],
    }
    assert more == EVERYTHING["networkPolicy"]["extraEgress"]


@pytest.mark.rule("SE:C21")
def test_nothing_reaches_the_pods_of_hooks():
    objects = rendered({})
    policy = policies(objects)["hooks"]
    assert (policy["policyTypes"], policy.get("ingress", [])) == (["Ingress"], [])
    hooks = [obj for obj in objects if obj["kind"] in ("Pod", "Job")]
    assert len(hooks) == 2
    for hook in hooks:
        labels = hook.get("spec", {}).get("template", hook)["metadata"]["labels"]
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()


def test_without_a_network_policy_there_is_none():
    assert of_kind("NetworkPolicy", rendered({"networkPolicy": {"enabled": False}})) == []


def test_without_metrics_there_is_no_service_and_no_monitor():
    objects = rendered({"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}})
    assert of_kind("Service", objects) + of_kind("ServiceMonitor", objects) == []


def test_the_service_monitor_finds_the_service():
    objects = rendered(EVERYTHING)
    (monitor,), (service,) = of_kind("ServiceMonitor", objects), of_kind("Service", objects)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert (monitor["metadata"]["namespace"], monitor["spec"]["namespaceSelector"]) == (
        "monitoring",
        {"matchNames": ["ops"]},
    )
    assert service["spec"]["type"] == "NodePort"
    assert service["spec"]["ports"] == [{"name": "metrics", "port": 80, "targetPort": "metrics"}]


@pytest.mark.rule("FD:UX-9")
@pytest.mark.parametrize(
    ("address", "target"), [("10.0.0.7", "10.0.0.7:44217"), ("fd00::7", "[fd00::7]:44217")], ids=["IPv4", "IPv6"]
)
def test_the_pod_monitor_finds_the_autoscaler_of_each_head(address, target):
    (monitor,) = of_kind("PodMonitor", rendered(EVERYTHING))
    assert monitor["spec"]["namespaceSelector"] == {"any": True}
    assert monitor["spec"]["selector"] == {"matchLabels": {constants.NODE_TYPE_LABEL: "head"}}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    container, *addresses = endpoint["relabelings"]
    assert re.fullmatch(container["regex"], constants.AUTOSCALER_CONTAINER)
    rewritten = [
        re.fullmatch(rule["regex"], address).expand(rule["replacement"].replace("${1}", r"\1"))
        for rule in addresses
        if re.fullmatch(rule["regex"], address)
    ]
    assert rewritten == [target]
    assert str(constants.AUTOSCALER_METRICS_PORT) in target


def test_the_pod_monitor_looks_into_the_watched_namespaces_only():
    (monitor,) = of_kind("PodMonitor", rendered({**NAMESPACED, "metrics": {"podMonitor": {"enabled": True}}}))
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["team-a", "team-b"]}


def alert_groups(**rule):
    (found,) = of_kind("PrometheusRule", rendered({"metrics": {"prometheusRule": {"enabled": True, **rule}}}))
    return found["spec"]["groups"]


def test_the_rules_of_the_values_follow_those_of_the_chart():
    (rule,) = of_kind("PrometheusRule", rendered(EVERYTHING))
    assert rule["spec"]["groups"] == [*ALERT_GROUPS, *EVERYTHING["metrics"]["prometheusRule"]["groups"]]
    assert alert_groups() == ALERT_GROUPS


def test_disabled_alerts_are_omitted_and_so_is_a_group_without_alerts():
    first, *others = ALERT_GROUPS
    kept, *omitted = first["rules"]
    assert alert_groups(disabledAlerts=[rule["alert"] for rule in omitted]) == [{**first, "rules": [kept]}, *others]
    assert alert_groups(disabledAlerts=[rule["alert"] for rule in first["rules"]]) == others


def dashboards(**values):
    (boards,) = of_kind("ConfigMap", rendered({"metrics": {"dashboards": {"enabled": True, **values}}}))
    return boards["data"]


def test_the_dashboards_of_the_values_are_added_to_those_of_the_chart():
    (boards,) = of_kind("ConfigMap", rendered(EVERYTHING))
    assert boards["data"] == {**DASHBOARDS, "ray.json": "{}"}
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert boards["metadata"]["annotations"] == {"folder": "Ray"}
    assert dashboards() == DASHBOARDS


def test_a_dashboard_of_the_values_replaces_the_one_of_its_name():
    name = min(DASHBOARDS)
    assert dashboards(files={name: "{}"}) == {**DASHBOARDS, name: "{}"}


# --- hooks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("FD:UX-9")
@pytest.mark.parametrize("values", [{}, NAMESPACED, CLUSTERS_ONLY], ids=["default", "two namespaces", "one kind"])
def test_an_upgrade_applies_the_crds_under_an_account_that_may_do_nothing_else(values):
    hooks = [
        obj
        for obj in rendered(values)
        if is_hook(obj) and obj["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    ]
    by_kind = {obj["kind"]: obj for obj in hooks}
    assert set(by_kind) == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    names = {yaml.safe_load(path.read_text())["metadata"]["name"] for path in (CHART / "crds").iterdir()}
    (rule,) = by_kind["ClusterRole"]["rules"]
    assert (rule["resources"], set(rule["resourceNames"])) == (["customresourcedefinitions"], names)
    assert set(rule["verbs"]) == {"get", "create", "patch"}
    account = by_kind["ServiceAccount"]["metadata"]["name"]
    assert by_kind["ClusterRoleBinding"]["roleRef"]["name"] == by_kind["ClusterRole"]["metadata"]["name"]
    assert by_kind["ClusterRoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": account, "namespace": "ops"}
    ]
    spec = by_kind["Job"]["spec"]["template"]["spec"]
    assert (spec["serviceAccountName"], spec["containers"][0]["args"]) == (account, ["crds", "apply"])
    assert account != pod(values)["serviceAccountName"]
    for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding"):
        assert "hook-succeeded,hook-failed" in by_kind[kind]["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    weights = {kind: int(obj["metadata"]["annotations"]["helm.sh/hook-weight"]) for kind, obj in by_kind.items()}
    assert max(weights, key=weights.get) == "Job"


@pytest.mark.parametrize(
    "values",
    [{"crds": {"upgrade": False}}, {"singleNamespaceInstall": True}, {"rbac": {"create": False}}],
    ids=["off", "a single namespace", "no RBAC"],
)
def test_no_account_for_crds_is_made_where_the_chart_must_not(values):
    hooks = {obj["metadata"]["annotations"]["helm.sh/hook"] for obj in rendered(values) if is_hook(obj)}
    assert hooks == {"test"}


@pytest.mark.parametrize("values", SETTINGS)
def test_nothing_of_the_operator_selects_a_pod_of_a_hook(values):
    objects = rendered(values)
    selector = of_kind("Deployment", objects)[0]["spec"]["selector"]["matchLabels"]
    pods = [obj["metadata"]["labels"] for obj in objects if obj["kind"] == "Pod"]
    pods += [obj["spec"]["template"]["metadata"]["labels"] for obj in objects if obj["kind"] == "Job"]
    assert pods
    assert not any(selector.items() <= labels.items() for labels in pods)


def test_helm_test_asks_the_operator_through_a_service_and_has_no_token():
    hooks = [obj for obj in rendered({}) if is_hook(obj) and obj["metadata"]["annotations"]["helm.sh/hook"] == "test"]
    (service,), (tester,) = ([obj for obj in hooks if obj["kind"] == kind] for kind in ("Service", "Pod"))
    assert service["spec"]["selector"] == deployment({})["spec"]["selector"]["matchLabels"]
    (container,) = tester["spec"]["containers"]
    assert container["args"][1] == f"http://{service['metadata']['name']}.ops.svc:8082"
    compile(container["args"][0], "helm test", "exec")
    assert "volumes" not in tester["spec"]
    assert "serviceAccountName" not in tester["spec"]


# --- values of KubeRay's chart -------------------------------------------------------------------------------------------

KUBERAYS_DEFAULTS = {
    "nameOverride": "kuberay-operator",
    "fullnameOverride": "kuberay-operator",
    "componentOverride": "kuberay-operator",
    "replicas": 1,
    "image": {"pullPolicy": "IfNotPresent"},
    "imagePullSecrets": [],
    "nodeSelector": {},
    "priorityClassName": "",
    "labels": {},
    "annotations": {},
    "affinity": {},
    "tolerations": [],
    "serviceAccount": {"create": True, "name": "kuberay-operator"},
    "logging": {"stdoutEncoder": "json", "fileEncoder": "json", "baseDir": "", "fileName": "", "sizeLimit": ""},
    "batchScheduler": {"enabled": False, "name": ""},
    "configuration": {"enabled": False, "defaultContainerEnvs": [], "headSidecarContainers": []},
    "featureGates": [
        {"name": "RayClusterStatusConditions", "enabled": True},
        {"name": "RayJobDeletionPolicy", "enabled": True},
        {"name": "RayMultiHostIndexing", "enabled": True},
        {"name": "RayServiceIncrementalUpgrade", "enabled": True},
        {"name": "RayCronJob", "enabled": False},
        {"name": "RayClusterMTLS", "enabled": False},
        {"name": "RayClusterNetworkPolicy", "enabled": False},
        {"name": "RayClusterHistoryServer", "enabled": False},
    ],
    "metrics": {
        "enabled": True,
        "serviceMonitor": {
            "enabled": False,
            "interval": "30s",
            "honorLabels": True,
            "additionalLabels": {},
            "namespace": "",
        },
    },
    "operatorCommand": "/manager",
    "leaderElectionEnabled": True,
    "reconcileConcurrency": 1,
    "kubeClient": {"qps": 100.0, "burst": 200},
    "rbacEnable": True,
    "crNamespacedRbacEnable": True,
    "singleNamespaceInstall": False,
    "env": None,
    "resources": {"limits": {"cpu": "100m", "memory": "512Mi"}},
    "livenessProbe": {"initialDelaySeconds": 10, "periodSeconds": 5, "failureThreshold": 5},
    "readinessProbe": {"initialDelaySeconds": 10, "periodSeconds": 5, "failureThreshold": 5},
    "hostUsers": None,
    "podSecurityContext": {},
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "service": {"type": "ClusterIP", "port": 8080},
}
"""What KubeRay's chart (1.5 and later) has in its values.yaml, but for the image."""


@pytest.mark.rule("FD:UX-8")
def test_a_values_file_of_kuberays_chart_works_here():
    objects = rendered(KUBERAYS_DEFAULTS, "kuberay-operator")
    (operator,) = of_kind("Deployment", objects)
    spec = operator["spec"]["template"]["spec"]
    check_restricted(spec)
    (container,) = spec["containers"]
    gates = "--feature-gates=" + ",".join(
        f"{gate['name']}={str(gate['enabled']).lower()}" for gate in KUBERAYS_DEFAULTS["featureGates"]
    )
    assert {"--log-format=json", "--reconcile-concurrency=1", "--enable-leader-election=true", gates} <= set(
        container["args"]
    )
    assert operator["metadata"]["name"] == spec["serviceAccountName"] == "kuberay-operator"
    assert container["readinessProbe"]["failureThreshold"] == 5
    assert container["resources"]["limits"]["cpu"] == "100m"
    assert operator["metadata"]["labels"]["app.kubernetes.io/component"] == "kuberay-operator"


@pytest.mark.rule("FD:UX-8")
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        pytest.param({"watchNamespace": ["team-a", "team-b"]}, NAMESPACED, id="watchNamespace"),
        pytest.param(
            {"watchNamespace": ["team-a"], "watchNamespaces": ["team-a"]}, {"watchNamespaces": ["team-a"]}, id="both"
        ),
        pytest.param(
            {"leaderElectionEnabled": False}, {"leaderElection": {"enabled": False}}, id="leaderElectionEnabled"
        ),
        pytest.param({"rbacEnable": False}, {"rbac": {"create": False}}, id="rbacEnable"),
        pytest.param({"annotations": {"a": "b"}}, {"podAnnotations": {"a": "b"}}, id="annotations"),
        pytest.param({"logging": {"stdoutEncoder": "json"}}, {"logFormat": "json"}, id="json logs"),
        pytest.param({"logging": {"stdoutEncoder": "console"}, "logFormat": "json"}, {}, id="console logs"),
        pytest.param(
            {"featureGates": [{"name": "RayMultiHostIndexing", "enabled": False}]},
            {"featureGates": {"RayMultiHostIndexing": False}},
            id="featureGates",
        ),
        pytest.param({"env": None}, {}, id="env"),
        pytest.param({"batchScheduler": {"name": "default"}}, {}, id="batchScheduler"),
        pytest.param(
            {**MONITORED, "metrics": {"serviceMonitor": {"enabled": True, "additionalLabels": {"a": "b"}}}},
            {**MONITORED, "metrics": {"serviceMonitor": {"enabled": True, "labels": {"a": "b"}}}},
            id="additionalLabels",
        ),
    ],
)
def test_a_value_of_kuberays_chart_is_another_name_of_ours(theirs, ours):
    assert rendered(theirs) == rendered(ours)


@pytest.mark.rule("FD:UX-8")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"image": {"repository": "quay.io/kuberay/operator"}},
            "image.repository: quay.io/kuberay/operator is KubeRay's",
        ),
        ({"image": {"repository": "mirror.example:5000/kuberay/operator"}}, "image.repository: mirror.example"),
        ({"logging": {"baseDir": "/var/log/kuberay"}}, "logging.baseDir, logging.fileName: logs go to standard error"),
        ({"logging": {"fileName": "operator.log"}}, "logging.baseDir, logging.fileName: logs go to standard error"),
        ({"batchScheduler": {"enabled": True}}, "batchScheduler.enabled: batch schedulers are not supported yet"),
        ({"batchScheduler": {"name": "volcano"}}, "batchScheduler.name: volcano is not supported yet"),
        ({"configuration": {"enabled": True}}, "configuration.enabled: sidecar containers"),
        ({"nodeEventForwarder": {"enabled": True}}, "nodeEventForwarder.enabled: events of nodes are not forwarded"),
        ({"operatorCommand": "/bin/manager"}, "operatorCommand: /bin/manager is not in Raytide's image"),
        ({"useKubernetesProxy": True}, "useKubernetesProxy: it is for RayJob and RayService"),
        ({"watchNamespace": ["a"], "watchNamespaces": ["b"]}, "watchNamespace, watchNamespaces: they differ"),
        ({"crNamespacedRbacEnable": False, "watchNamespace": ["a"]}, "crNamespacedRbacEnable: false applies with"),
        ({"crds": None}, "upgrade with --reset-then-reuse-values instead of --reuse-values"),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "networkPolicy.metricsFrom: no pod may read metrics"),
        (
            {"metrics": {"enabled": False, "prometheusRule": {"enabled": True}}},
            "metrics.prometheusRule.enabled: the operator has no metrics",
        ),
        (
            {"metrics": {"prometheusRule": {"enabled": True, "disabledAlerts": ["RayClusterSlow"]}}},
            "metrics.prometheusRule.disabledAlerts: the chart has no alert RayClusterSlow: it has RayClusterWorkersMissing,",
        ),
    ],
)
def test_what_would_be_ignored_is_rejected_with_its_name_and_a_remedy(values, message):
    answer = ask_helm("template", "raytide", values=values)
    assert answer.returncode != 0
    assert message in answer.stderr


def test_user_namespaces_need_a_kubernetes_that_has_them(monkeypatch):
    monkeypatch.setattr(f"{__name__}.KUBERNETES", "1.32.0")
    assert (
        "hostUsers: false needs Kubernetes 1.33, this is v1.32.0"
        in ask_helm("template", "x", values={"hostUsers": False}).stderr
    )


# --- values in the documentation -----------------------------------------------------------------------------------------


def values_in(page):
    """Values of the chart in the YAML blocks of a page: blocks that have no other names, and those of Argo CD's Applications."""
    names = set(json.loads((CHART / "values.schema.json").read_text())["properties"])
    for block in re.findall(r"^ *```yaml\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
        for obj in yaml.safe_load_all(dedent(block)):
            if isinstance(obj, dict) and set(obj) <= names:
                yield obj
            elif isinstance(obj, dict) and obj.get("kind") == "Application":
                yield obj["spec"]["source"]["helm"]["valuesObject"]


@pytest.mark.parametrize("page", ["docs/integrations.md", "docs/trainingjob.md", "helm/raytide/README.md"])
def test_the_values_of_a_page_are_accepted(page):
    shown = [*values_in(CHART.parents[1] / page)]
    assert shown
    for values in shown:
        assert rendered(values)


# --- wrong values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "path"),
    [
        pytest.param({"replicass": 2}, "replicass", id="a name that does not exist"),
        pytest.param({"watchNamespace": "a"}, "/watchNamespace", id="a string for a list, under KubeRay's name"),
        pytest.param(
            {"featureGates": [{"name": "Foo", "enabled": True}]},
            "/featureGates/0/name",
            id="KubeRay's list, an unknown gate",
        ),
        pytest.param(
            {"featureGates": [{"name": "KubernetesWAS", "enabled": True}]},
            "/featureGates/0/enabled",
            id="KubeRay's list, not built",
        ),
        pytest.param({"replicas": 2, "leaderElectionEnabled": False}, "/replicas", id="two without KubeRay's election"),
        pytest.param({**CLUSTERS_ONLY, **JOBS_ONLY}, "/trainingJob/enabled", id="no controller"),
        pytest.param({"labels": {"app.kubernetes.io/name": "x"}}, "/labels", id="a label that selectors use"),
        pytest.param({"networkPolicy": {"apiServer": ["10.0.0.1"]}}, "/networkPolicy/apiServer/0", id="no CIDR"),
        pytest.param({"openshift": True}, "/openshift", id="a switch for a choice"),
        pytest.param({"extraArgs": "--log-level=debug"}, "/extraArgs", id="a string for arguments"),
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
        pytest.param({"sharing": {"nodeAutoscaler": "yes"}}, "/sharing/nodeAutoscaler", id="a third answer"),
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
