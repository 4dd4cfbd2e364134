"""Which autoscaler runs in a head pod, and its head and workers (RC §3.7, RC:POD-6, RC:POD-19, RC:VOL-2)."""

import re
from pathlib import Path
from typing import Any

import pytest

from raytide.api.config import AutoscalerConfig, ClusterConfig, PodConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.manifests.autoscaler import chosen_autoscaler
from raytide.raycluster.manifests.pods import build_head_pod, build_worker_template
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from raytide.raycluster.spec_queries import OLDEST_TESTED_RAY, parse_ray_version
from support.builders import group, parsed, template

OURS = PodConfig(operator_version="raytide-1.2.3", autoscaler=AutoscalerConfig("raytide", "registry.example/raytide:1"))
RAYS = PodConfig(operator_version="raytide-1.2.3", autoscaler=AutoscalerConfig("ray", "registry.example/raytide:1"))
HEAD_IMAGE = "rayproject/ray:2.52.0"
OPTIONS_OF_BOTH = ["--cluster-name", "$(RAY_CLUSTER_NAME)", "--cluster-namespace", "$(RAY_CLUSTER_NAMESPACE)"]
RAYS_COMMAND = "ray kuberay-autoscaler " + " ".join(OPTIONS_OF_BOTH)
OUR_COMMAND = "raytide autoscaler " + " ".join(OPTIONS_OF_BOTH)
V2_ENV = "RAY_enable_autoscaler_v2"
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"

Json = dict[str, Any]


def autoscaled(
    *, env: list[Json] | None = None, head: Json | None = None, ray: Json | None = None, **spec: Any
) -> RayCluster:
    head_template = template("ray-head", **(head or {}))
    head_template["spec"]["containers"][0] |= ray or {}
    if env:
        head_template["spec"]["containers"][0]["env"] = env
    head_group = {"rayStartParams": {}, "template": head_template}
    return parsed(**{"headGroupSpec": head_group, "enableInTreeAutoscaling": True, **spec})


def head_of(cluster: RayCluster, config: PodConfig = OURS) -> Json:
    return build_head_pod(cluster, config, "demo-head-aaaaa")["spec"]


def worker_of(cluster: RayCluster, config: PodConfig = OURS) -> Json:
    return build_worker_template(cluster, cluster.spec.worker_group_specs[0], config)["spec"]


def sidecar_of(cluster: RayCluster, config: PodConfig = OURS) -> Json:
    (found,) = (each for each in head_of(cluster, config)["containers"] if each["name"] == "autoscaler")
    return found


def ray_env(spec: Json) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in spec["containers"][0]["env"]}


def mounts_of(container: Json) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", ())}


# --- each branch of the choice of a version ---------------------------------------------------------------------------

OLD, NEW = "2.46.0", "2.47.1"
BRANCHES = {
    "no version, Ray before 2.47": ({"rayVersion": OLD}, None),
    "no version, Ray from 2.47 on": ({"rayVersion": NEW}, None),
    "v1": ({"autoscalerOptions": {"version": "v1"}}, None),
    "v2": ({"autoscalerOptions": {"version": "v2"}}, None),
    "the old variable on": ({}, "1"),
    "the old variable off": ({}, "0"),
}
TOO_OLD = "no version, Ray before 2.47"
"""No branch of Ray's: ours is not tested with such a Ray."""
KUBERAYS = {
    "no version, Ray before 2.47": (None, None, None),
    "no version, Ray from 2.47 on": (None, None, None),
    "v1": ("false", None, None),
    "v2": ("true", "Never", "Never"),
    "the old variable on": ("1", None, None),
    "the old variable off": ("0", None, None),
}
"""The variable of the Ray container, and the restartPolicy of head and workers."""


def branch(name: str) -> RayCluster:
    spec, variable = BRANCHES[name]
    return autoscaled(env=[{"name": V2_ENV, "value": variable}] if variable else None, **spec)


def seen(name: str, config: PodConfig) -> tuple[str | None, str | None, str | None]:
    head, worker = head_of(branch(name), config), worker_of(branch(name), config)
    return ray_env(head).get(V2_ENV), head.get("restartPolicy"), worker.get("restartPolicy")


@pytest.mark.rule("RC:POD-6", "RC:POD-19", "RC:AS-3")
@pytest.mark.parametrize("name", BRANCHES)
def test_with_rays_autoscaler_every_branch_is_kuberays(name):
    assert seen(name, RAYS) == KUBERAYS[name]
    sidecar = sidecar_of(branch(name), RAYS)
    assert (sidecar["command"], sidecar["args"]) == (["/bin/bash", "-c", "--"], [RAYS_COMMAND])
    assert sidecar["image"] == HEAD_IMAGE


@pytest.mark.rule("RC:POD-6", "RC:POD-19", "RC:AS-3")
@pytest.mark.parametrize("name", BRANCHES)
def test_raytides_sidecar_changes_only_the_v2_variable_unless_the_user_set_it(name):
    variable, *policies = KUBERAYS[name]
    ours = variable if name == TOO_OLD else variable or "true"
    assert seen(name, OURS) == (ours, *policies)


@pytest.mark.rule("RC:AS-3")
@pytest.mark.parametrize("name", ["v1", "the old variable off"])
def test_clusters_that_choose_v1_get_rays_autoscaler(name):
    sidecar = sidecar_of(branch(name), OURS)
    assert (sidecar["image"], sidecar["args"]) == (HEAD_IMAGE, [RAYS_COMMAND])


@pytest.mark.rule("RC:AS-3")
@pytest.mark.parametrize("name", sorted(BRANCHES.keys() - {"v1", "the old variable off", TOO_OLD}))
def test_all_other_clusters_get_raytides_autoscaler(name):
    sidecar = sidecar_of(branch(name), OURS)
    assert (sidecar["command"], sidecar["args"]) == (["raytide", "autoscaler"], OPTIONS_OF_BOTH)
    assert sidecar["image"] == "registry.example/raytide:1"


@pytest.mark.rule("FD:RC-B6")
@pytest.mark.parametrize(
    ("ray_version", "options", "mode", "is_reported"),
    [
        pytest.param("2.40.0", None, "raytide", True, id="no choice"),
        pytest.param("2.46.9", {"version": "v2"}, "raytide", True, id="v2, which both programs have"),
        pytest.param("2.40.0", {"version": "v1"}, "raytide", False, id="v1: the cluster chose"),
        pytest.param("2.40.0", {"image": "mine"}, "raytide", False, id="an image: the cluster chose"),
        pytest.param("2.40.0", None, "ray", False, id="the install chose"),
    ],
)
def test_an_untested_ray_version_gets_rays_autoscaler_as_with_kuberay(ray_version, options, mode, is_reported):
    cluster = autoscaled(rayVersion=ray_version, **({"autoscalerOptions": options} if options else {}))
    config = PodConfig(
        operator_version="raytide-1.2.3", autoscaler=AutoscalerConfig(mode, "registry.example/raytide:1")
    )
    kuberays, ours = head_of(cluster, RAYS), head_of(cluster, config)
    assert (ray_env(ours), ours.get("restartPolicy")) == (ray_env(kuberays), kuberays.get("restartPolicy"))
    what = ("image", "command", "args", "env", "resources")
    their_sidecar, our_sidecar = sidecar_of(cluster, RAYS), sidecar_of(cluster, config)
    assert [our_sidecar.get(key) for key in what] == [their_sidecar.get(key) for key in what]
    reported = plan(cluster, Observed(), ClusterConfig(pods=config), lambda prefix: f"{prefix}aaaaa").events
    events = [(each.event_type, each.reason) for each in reported if ray_version in each.message]
    assert events == ([("Normal", "UsingRayAutoscaler")] if is_reported else [])


@pytest.mark.rule("FD:RC-B6")
@pytest.mark.parametrize("ray_version", ["", "nightly", "2.47.0", "2.52.0", "3.0.0"])
def test_any_other_ray_version_gets_raytides_autoscaler_without_an_event(ray_version):
    cluster = autoscaled(rayVersion=ray_version)
    assert chosen_autoscaler(cluster, OURS.autoscaler) == "raytide"
    assert plan(cluster, Observed(), ClusterConfig(pods=OURS), lambda prefix: f"{prefix}aaaaa").events == ()


@pytest.mark.rule("FD:RC-B6")
def test_the_oldest_ray_is_one_that_is_tested():
    text = (Path(__file__).parents[4] / "tools" / "checks" / "ray_versions.py").read_text()
    tested = min(map(parse_ray_version, re.findall(r'"(2\.\d+\.\d+)"', text)))
    assert tested[:2] == OLDEST_TESTED_RAY[:2]


@pytest.mark.parametrize(
    ("options", "mode", "expected"),
    [
        pytest.param(None, "raytide", "raytide", id="as it comes"),
        pytest.param(None, "ray", "ray", id="configured: Ray's"),
        pytest.param({"image": "mine"}, "raytide", "ray", id="an image of the user's"),
        pytest.param({"command": ["x"]}, "raytide", "ray", id="a command of the user's"),
        pytest.param({"args": ["x"]}, "raytide", "ray", id="arguments for Ray's command"),
        pytest.param({"env": [{"name": "A"}], "resources": {}}, "raytide", "raytide", id="other wishes"),
        pytest.param({"version": "v2"}, "ray", "ray", id="v2 where configured: Ray's"),
    ],
)
def test_which_autoscaler_runs(options, mode, expected):
    cluster = autoscaled(**({"autoscalerOptions": options} if options is not None else {}))
    assert chosen_autoscaler(cluster, AutoscalerConfig(mode)) == expected


# --- the sidecar -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:POD-6", "RC:RSP-8")
def test_nothing_is_added_without_autoscaling():
    cluster = parsed(autoscalerOptions={"version": "v2"})
    head = head_of(cluster)
    assert [each["name"] for each in head["containers"]] == ["ray-head"]
    assert head.keys().isdisjoint({"serviceAccountName", "restartPolicy", "automountServiceAccountToken"})
    assert "--no-monitor" not in ray_env(head)["KUBERAY_GEN_RAY_START_CMD"]
    assert "restartPolicy" not in worker_of(cluster)
    assert "/tmp/ray" not in mounts_of(head["containers"][0])


@pytest.mark.rule("RC:RSP-8")
def test_ray_leaves_scaling_to_it():
    head_group = {"rayStartParams": {"no-monitor": "false"}, "template": template("ray-head")}
    head = head_of(autoscaled(headGroupSpec=head_group))
    assert " --no-monitor " in ray_env(head)["KUBERAY_GEN_RAY_START_CMD"]
    assert " --no-monitor " in head["containers"][0]["args"][0]
    assert "--no-monitor" not in worker_of(autoscaled())["containers"][0]["args"][0]


KUBERAYS_ENV = [
    *("RAY_CLUSTER_NAME", "RAY_CLUSTER_NAMESPACE", "RAY_HEAD_POD_NAME"),
    *("KUBERAY_CRD_VER", "KUBERAY_GEN_AUTOSCALER_START_CMD"),
]


@pytest.mark.rule("RC §3.7")
@pytest.mark.parametrize(
    ("config", "command", "more"),
    [
        pytest.param(RAYS, RAYS_COMMAND, [], id="Ray's"),
        pytest.param(OURS, OUR_COMMAND, ["RAYTIDE_OPERATOR_VERSION", "RAYTIDE_GCS_ADDRESS"], id="Raytide's"),
    ],
)
def test_its_environment_is_kuberays_in_kuberays_order(config, command, more):
    env = sidecar_of(autoscaled(autoscalerOptions={"env": [{"name": "A", "value": "1"}]}), config)["env"]
    assert [each["name"] for each in env] == [*KUBERAYS_ENV, *more, "A"]
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in env if "valueFrom" in each}
    assert fields == {
        "RAY_CLUSTER_NAME": "metadata.labels['ray.io/cluster']",
        "RAY_CLUSTER_NAMESPACE": "metadata.namespace",
        "RAY_HEAD_POD_NAME": "metadata.name",
    }
    values = {each["name"]: each["value"] for each in env if "value" in each}
    assert (values["KUBERAY_CRD_VER"], values["KUBERAY_GEN_AUTOSCALER_START_CMD"]) == ("v1", command)


def test_the_sidecar_gets_the_operators_version_and_the_address_of_the_gcs():
    head_group = {"rayStartParams": {"port": "6380"}, "template": template("ray-head")}
    env = {each["name"]: each.get("value") for each in sidecar_of(autoscaled(headGroupSpec=head_group))["env"]}
    assert env["RAYTIDE_OPERATOR_VERSION"] == "raytide-1.2.3"
    assert env["RAYTIDE_GCS_ADDRESS"] == "127.0.0.1:6380"


@pytest.mark.rule("RC §3.7")
@pytest.mark.parametrize("config", [pytest.param(RAYS, id="Ray's"), pytest.param(OURS, id="Raytide's")])
def test_what_it_may_use_is_kuberays(config):
    sidecar = sidecar_of(autoscaled(), config)
    amounts = {"cpu": "500m", "memory": "512Mi"}
    assert sidecar["resources"] == {"limits": amounts, "requests": amounts}
    assert sidecar["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.rule("RC §3.7")
def test_rays_autoscaler_has_no_probe_token_and_security_context_of_raytide():
    sidecar, head = sidecar_of(autoscaled(), RAYS), head_of(autoscaled(), RAYS)
    assert sidecar.keys() == {
        *("name", "image", "imagePullPolicy", "command", "args", "env", "resources", "volumeMounts"),
    }
    assert "automountServiceAccountToken" not in head
    assert [volume["name"] for volume in head["volumes"]] == ["shared-mem", "ray-logs"]


@pytest.mark.rule("RC:AS-1")
@pytest.mark.parametrize("config", [pytest.param(RAYS, id="Ray's"), pytest.param(OURS, id="Raytide's")])
def test_autoscaler_options_replace_fields_and_extend_env_and_mounts(config):
    options = {
        "imagePullPolicy": "Always",
        "resources": {"limits": {"cpu": "1"}},
        "securityContext": {"runAsUser": 1000},
        "env": [{"name": "A", "value": "1"}],
        "envFrom": [{"configMapRef": {"name": "c"}}],
        "volumeMounts": [{"name": "mine", "mountPath": "/mine"}],
    }
    sidecar = sidecar_of(autoscaled(autoscalerOptions=options), config)
    for key in ("imagePullPolicy", "resources", "securityContext", "envFrom"):
        assert sidecar[key] == options[key]
    assert sidecar["env"][-1] == options["env"][0]
    assert mounts_of(sidecar).items() >= {"/mine": "mine", "/tmp/ray": "ray-logs"}.items()


@pytest.mark.rule("RC:AS-1")
def test_the_users_image_command_and_arguments_are_kept():
    options = {"image": "example.org/a:1", "command": ["/bin/sh", "-c"], "args": ["exec autoscaler"]}
    sidecar = sidecar_of(autoscaled(autoscalerOptions=options))
    assert (sidecar["image"], sidecar["command"], sidecar["args"]) == tuple(options.values())
    assert "livenessProbe" not in sidecar


@pytest.mark.rule("RC:AS-1")
def test_an_image_alone_is_run_with_rays_command():
    sidecar = sidecar_of(autoscaled(autoscalerOptions={"image": "rayproject/ray:2.60.0"}))
    assert (sidecar["image"], sidecar["args"]) == ("rayproject/ray:2.60.0", [RAYS_COMMAND])


@pytest.mark.rule("RC:AS-2")
def test_the_sidecar_comes_after_the_users_containers_and_before_configured_sidecars():
    pod_template = template("ray-head")
    pod_template["spec"]["containers"].append({"name": "users", "image": "busybox"})
    cluster = autoscaled(headGroupSpec={"rayStartParams": {}, "template": pod_template})
    config = PodConfig(head_sidecar_containers=({"name": "installs", "image": "busybox"},))
    names = [each["name"] for each in head_of(cluster, config)["containers"]]
    assert names == ["ray-head", "users", "autoscaler", "installs"]


# --- the account -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:POD-6")
@pytest.mark.parametrize(
    ("head", "name", "expected"),
    [
        pytest.param({}, "demo", "demo", id="one of its own"),
        pytest.param({}, "a" + "b" * 51, "b" * 50, id="a long name"),
        pytest.param({"serviceAccountName": "mine"}, "demo", "mine", id="the user's"),
        pytest.param({"serviceAccountName": "9" + "m" * 60}, "demo", "9" + "m" * 60, id="the user's, long"),
    ],
)
def test_under_which_account_the_head_runs(head, name, expected):
    assert head_of(autoscaled(head=head, name=name))["serviceAccountName"] == expected
    assert "serviceAccountName" not in worker_of(autoscaled(head=head, name=name))


@pytest.mark.rule("SE:C22", "FD:SEC-F8")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="Raytide's"),
        pytest.param({"image": "rayproject/ray:2.60.0"}, id="Ray's, by an image"),
        pytest.param({"command": ["ray"]}, id="Ray's, by a command"),
        pytest.param({"args": ["exec ray"]}, id="Ray's, by arguments"),
        pytest.param({"version": "v1"}, id="Ray's V1"),
    ],
)
def test_only_the_autoscaler_holds_the_token(options):
    head = head_of(autoscaled(autoscalerOptions=options))
    assert head["automountServiceAccountToken"] is False
    holders = [each["name"] for each in head["containers"] if TOKEN_PATH in mounts_of(each)]
    assert holders == ["autoscaler"]
    (volume,) = (each for each in head["volumes"] if "projected" in each)
    token = volume["projected"]["sources"][0]["serviceAccountToken"]
    assert token == {"path": "token", "expirationSeconds": 3600}
    paths = [
        item["path"]
        for source in volume["projected"]["sources"][1:]
        for part in source.values()
        for item in part["items"]
    ]
    assert paths == ["ca.crt", "namespace"]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        pytest.param({"serviceAccountName": "mine"}, None, id="an account of the user's"),
        pytest.param({"automountServiceAccountToken": True}, True, id="a token in all containers, if the user sets it"),
        pytest.param({"automountServiceAccountToken": False}, False, id="no token in other containers"),
    ],
)
def test_token_settings_of_the_template_are_kept_and_the_sidecar_has_its_own_token(head, expected):
    spec = head_of(autoscaled(head=head))
    assert spec.get("automountServiceAccountToken") is expected
    assert TOKEN_PATH in mounts_of(sidecar_of(autoscaled(head=head)))


def test_the_users_mount_of_credentials_replaces_the_token_mount():
    mount = {"name": "mine", "mountPath": f"{TOKEN_PATH}/"}
    cluster = autoscaled(autoscalerOptions={"volumeMounts": [mount]})
    assert sidecar_of(cluster)["volumeMounts"][0] == mount
    assert [volume["name"] for volume in head_of(cluster)["volumes"]] == ["shared-mem", "ray-logs"]
    assert "automountServiceAccountToken" not in head_of(cluster)


# --- no privileges, and a probe ----------------------------------------------------------------------------------------


@pytest.mark.rule("SE:C5")
def test_raytides_sidecar_has_no_privileges():
    assert sidecar_of(autoscaled())["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(("user", "expected"), [(0, 1000), (2000, None)])
def test_it_is_not_root_even_where_the_template_makes_all_containers_root(user, expected):
    context = sidecar_of(autoscaled(head={"securityContext": {"runAsUser": user}}))["securityContext"]
    assert context.get("runAsUser") == expected


@pytest.mark.rule("D26")
@pytest.mark.parametrize(
    ("ray", "pod", "expected"),
    [
        pytest.param(
            {"runAsUser": 2000, "runAsGroup": 3000}, {}, (2000, 3000), id="the Ray container's user and group"
        ),
        pytest.param({"runAsUser": 2000}, {}, (2000, 100), id="a user without a group: a runtime would take group 0"),
        pytest.param({"runAsUser": 2000}, {"runAsUser": 0}, (2000, 100), id="also where the pod's is root"),
        pytest.param({"runAsUser": 2000}, {"runAsGroup": 3000}, (2000, None), id="the pod's group applies anyway"),
        pytest.param({}, {"runAsUser": 2000}, (None, 100), id="the pod's user without a group"),
        pytest.param(
            {}, {"runAsUser": 2000, "runAsGroup": 3000}, (None, None), id="the pod's user and group apply anyway"
        ),
        pytest.param({}, {}, (None, None), id="no user: the runtime or OpenShift chooses"),
        pytest.param({"runAsUser": 0, "runAsGroup": 0}, {}, (None, None), id="not root"),
        pytest.param({"runAsUser": 0}, {"runAsUser": 0}, (1000, 100), id="not the pod's root either"),
        pytest.param({"runAsGroup": 3000}, {}, (None, None), id="a group alone says nothing about the user"),
    ],
)
def test_it_runs_as_rays_user_so_that_it_may_write_messages_for_drivers(ray, pod, expected):
    cluster = autoscaled(head={"securityContext": pod}, ray={"securityContext": ray})
    context = sidecar_of(cluster)["securityContext"]
    assert (context.get("runAsUser"), context.get("runAsGroup")) == expected


def test_the_liveness_probe_allows_two_minutes_because_restart_policy_never_is_final():
    probe = sidecar_of(autoscaled())["livenessProbe"]
    assert probe["httpGet"] == {"path": "/healthz", "port": 44218}
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 120


HEALTH_PORT = "RAYTIDE_AUTOSCALER_HEALTH_PORT"
FROM_A_FIELD: Json = {"name": HEALTH_PORT, "valueFrom": {"configMapKeyRef": {"name": "ports", "key": "health"}}}


@pytest.mark.rule("FD:RC3-5")
@pytest.mark.parametrize(
    ("env", "port"),
    [
        pytest.param([{"name": "A", "value": "1"}], 44218, id="not set"),
        pytest.param([{"name": HEALTH_PORT, "value": "45218"}], 45218, id="a port"),
        pytest.param([{"name": HEALTH_PORT, "value": " 45218 "}], 45218, id="a port with spaces"),
        pytest.param([{"name": HEALTH_PORT, "value": ""}], 44218, id="empty"),
        pytest.param([{"name": HEALTH_PORT}], 44218, id="no value"),
        pytest.param([{"name": HEALTH_PORT, "value": "0"}], None, id="disabled"),
        pytest.param([{"name": HEALTH_PORT, "value": "$(A)"}], None, id="another variable"),
        pytest.param([FROM_A_FIELD], None, id="from a ConfigMap"),
        pytest.param([{"name": HEALTH_PORT, "value": "70000"}], None, id="no port: the sidecar ends with a message"),
        pytest.param(
            [{"name": HEALTH_PORT, "value": "1"}, {"name": HEALTH_PORT, "value": "45218"}], 45218, id="the last of two"
        ),
    ],
)
def test_the_probe_follows_the_port_that_the_user_sets(env, port):
    sidecar = sidecar_of(autoscaled(autoscalerOptions={"env": env}))
    assert sidecar.get("livenessProbe", {}).get("httpGet", {}).get("port") == port


@pytest.mark.rule("FD:RC3-5")
def test_a_port_from_elsewhere_cannot_differ_from_the_probes():
    sidecar = sidecar_of(autoscaled(autoscalerOptions={"envFrom": [{"configMapRef": {"name": "ports"}}]}))
    assert {"name": HEALTH_PORT, "value": "44218"} in sidecar["env"], "it overrides envFrom"
    assert sidecar["livenessProbe"]["httpGet"]["port"] == 44218


@pytest.mark.rule("FD:RC3-5", "RC:POD-8")
def test_two_heads_on_the_network_of_one_node_have_no_port_in_common():
    def ports_of(shift: int) -> set[int]:
        env = [{"name": HEALTH_PORT, "value": str(44218 + shift)}, {"name": "AUTOSCALER_METRIC_PORT", "value": "0"}]
        params = {"metrics-export-port": str(8080 + shift), "dashboard-agent-listen-port": str(52365 + shift)}
        head = {"rayStartParams": params, "template": template("ray-head", hostNetwork=True)}
        spec = head_of(autoscaled(headGroupSpec=head, rayVersion="2.53.0", autoscalerOptions={"env": env}))
        containers = spec["containers"]
        probes = [each[kind] for each in containers for kind in ("livenessProbe", "readinessProbe") if kind in each]
        declared = {port["containerPort"] for each in containers for port in each.get("ports", ())}
        return declared | {probe["httpGet"]["port"] for probe in probes}

    assert len(ports_of(0)) == 3
    assert ports_of(0) & ports_of(1000) == set()


# --- where a killed container stays down --------------------------------------------------------------------------------

NATIVE = PodConfig(
    operator_version=OURS.operator_version,
    autoscaler=AutoscalerConfig(image=OURS.autoscaler.image, has_native_sidecars=True),
)
V2: Json = {"autoscalerOptions": {"version": "v2"}}
NEVER: Json = {"head": {"restartPolicy": "Never"}}


def names_of(spec: Json) -> tuple[list[str], list[str]]:
    """The containers and the init containers, by name."""
    return [each["name"] for each in spec["containers"]], [each["name"] for each in spec.get("initContainers", ())]


@pytest.mark.rule("D27")
@pytest.mark.parametrize("cluster", [pytest.param(V2, id="version v2"), pytest.param(NEVER, id="the template")])
def test_with_restart_policy_never_it_is_a_native_sidecar(cluster):
    shaped, native = head_of(autoscaled(**cluster)), head_of(autoscaled(**cluster), NATIVE)
    assert (shaped["restartPolicy"], native["restartPolicy"]) == ("Never", "Never")
    assert (names_of(shaped), names_of(native)) == ((["ray-head", "autoscaler"], []), (["ray-head"], ["autoscaler"]))
    (autoscaler,) = native["initContainers"]
    assert autoscaler == {**shaped["containers"][1], "restartPolicy": "Always"}
    assert {**native, "containers": 0, "initContainers": 0} == {**shaped, "containers": 0, "initContainers": 0}


@pytest.mark.rule("D27")
def test_a_native_sidecar_starts_after_the_users_init_containers_and_leaves_the_users_containers_in_place():
    users = {"initContainers": [{"name": "prepare"}]}
    cluster = autoscaled(head=users, **V2)
    cluster.spec.head_group_spec.template["spec"]["containers"].append({"name": "exporter"})
    assert names_of(head_of(cluster, NATIVE)) == (["ray-head", "exporter"], ["prepare", "autoscaler"])


@pytest.mark.rule("D27")
@pytest.mark.parametrize(
    ("cluster", "config"),
    [
        pytest.param({}, NATIVE, id="the kubelet restarts it anyway"),
        pytest.param({"head": {"restartPolicy": "OnFailure"}}, NATIVE, id="also after failures only"),
        pytest.param(V2, OURS, id="an API server without native sidecars"),
        pytest.param(
            V2, PodConfig(autoscaler=AutoscalerConfig("ray", has_native_sidecars=True)), id="Ray's autoscaler"
        ),
    ],
)
def test_otherwise_it_is_a_container_as_with_kuberay(cluster, config):
    assert names_of(head_of(autoscaled(**cluster), config)) == (["ray-head", "autoscaler"], [])


@pytest.mark.rule("D27")
def test_a_cluster_without_autoscaling_and_its_workers_have_none():
    cluster = autoscaled(**V2)
    assert names_of(worker_of(cluster, NATIVE))[0] == names_of(worker_of(cluster))[0]
    assert "autoscaler" not in names_of(worker_of(cluster, NATIVE))[1]
    fixed = autoscaled(enableInTreeAutoscaling=False, **NEVER)
    assert names_of(head_of(fixed, NATIVE)) == (["ray-head"], [])


# --- logs --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:VOL-2")
def test_both_containers_share_rays_logs():
    head = head_of(autoscaled())
    assert {"name": "ray-logs", "emptyDir": {}} in head["volumes"]
    assert [mounts_of(each)["/tmp/ray"] for each in head["containers"]] == ["ray-logs", "ray-logs"]


@pytest.mark.rule("RC:VOL-2")
@pytest.mark.parametrize("path", ["/tmp/ray", "/tmp/ray/"])
def test_a_mount_of_the_users_in_the_ray_container_stays_and_the_autoscaler_has_its_own(path):
    pod_template = template("ray-head", volumes=[{"name": "mine", "emptyDir": {}}])
    pod_template["spec"]["containers"][0]["volumeMounts"] = [{"name": "mine", "mountPath": path}]
    head = head_of(autoscaled(headGroupSpec={"rayStartParams": {}, "template": pod_template}), RAYS)
    ray, autoscaler = head["containers"]
    assert mounts_of(ray) == {path: "mine", "/dev/shm": "shared-mem"}
    assert mounts_of(autoscaler) == {"/tmp/ray": "ray-logs"}


@pytest.mark.rule("RC:VOL-2")
def test_a_volume_of_that_name_is_used_as_it_is():
    mine = {"name": "ray-logs", "hostPath": {"path": "/var/log/ray"}}
    volumes = head_of(autoscaled(head={"volumes": [mine]}), RAYS)["volumes"]
    assert [volume for volume in volumes if volume["name"] == "ray-logs"] == [mine]


@pytest.mark.rule("RC:VOL-2")
def test_workers_share_no_logs():
    assert mounts_of(worker_of(autoscaled(workerGroupSpecs=[group()]))["containers"][0]) == {"/dev/shm": "shared-mem"}
