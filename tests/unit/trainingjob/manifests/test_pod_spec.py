"""The pods of a TrainingJob field by field: every default of TJ §2.1, every container of §2.2, and the template."""

from dataclasses import replace
from typing import Any

import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.capacity import capacity_pod_from_object
from raytide.api.config import JobConfig
from raytide.api.trainingjob_pods import Size
from raytide.trainingjob.manifests.objects import build_pod, build_pods
from support.training_builders import parsed_job, seed_job

CONFIG = JobConfig()


def pod_of(role: str = constants.TRAINER, *, size: Size | None = None, index: int = 0, **spec: Any) -> dict[str, Any]:
    return build_pod(parsed_job(**spec), role, index, size or Size(2, 1), CONFIG)


def main_of(role: str = constants.TRAINER, **spec: Any) -> dict[str, Any]:
    return pod_of(role, **spec)["spec"]["containers"][0]


def values_of(container: dict[str, Any]) -> dict[str, str]:
    """Name -> value, or the path of the field."""
    return {
        variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
        if "valueFrom" in variable
        else variable["value"]
        for variable in container.get("env", [])
    }


# --- defaults of TJ §2.1 -------------------------------------------------------------------------------------------------
@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize(
    ("spec", "variable", "expected"),
    [
        pytest.param({}, "PADDLE_INIT_PORT", "7164", id="the port is 7164"),
        pytest.param({"port": 9000}, "PADDLE_INIT_PORT", "9000", id="unless another is given"),
        pytest.param({"port": 0}, "PADDLE_INIT_PORT", "7164", id="zero means the default, as upstream has it"),
        pytest.param({}, "PADDLE_INIT_PORTS_NUM", "1", id="one port for dense parameters"),
        pytest.param({"ports_num": 3}, "PADDLE_INIT_PORTS_NUM", "3", id="or the configured number"),
        pytest.param({}, "PADDLE_INIT_PORTS_NUM_FOR_SPARSE", "1", id="one port for sparse parameters"),
        pytest.param({"portsNumForSparse": 2}, "PADDLE_INIT_PORTS_NUM_FOR_SPARSE", "2", id="or more"),
        pytest.param({}, "PADDLE_INIT_NUM_PASSES", "1", id="one pass"),
        pytest.param({"passes": 5}, "PADDLE_INIT_NUM_PASSES", "5", id="passes of the job"),
        pytest.param({"trainer": {"passes": 7}}, "PADDLE_INIT_NUM_PASSES", "7", id="passes where examples put them"),
        pytest.param({"passes": 5, "trainer": {"passes": 7}}, "PADDLE_INIT_NUM_PASSES", "5", id="the job's passes win"),
    ],
)
def test_defaults_reach_the_launcher(spec, variable, expected):
    assert values_of(main_of(**spec))[variable] == expected


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, [7164, 7165], id="one dense and one sparse port from 7164 on"),
        pytest.param({"ports_num": 2, "ports_num_for_sparse": 3}, [*range(7164, 7169)], id="the sum of both numbers"),
        pytest.param({"port": 50}, [50, 51], id="from the base port on"),
    ],
)
@pytest.mark.parametrize("role", ["pserver", "trainer"])
def test_job_ports_are_declared_one_by_one(role, spec, expected):
    ports = main_of(role, pserver={"min-instance": 1}, **spec)["ports"]
    assert ports == [{"name": f"jobport-{number}", "containerPort": number} for number in expected]


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, "paddlepaddle/paddlecloud-job", id="upstream's image"),
        pytest.param({"image": ""}, "paddlepaddle/paddlecloud-job", id="also for an empty text"),
        pytest.param({"image": "mine:1"}, "mine:1", id="or the user's"),
    ],
)
@pytest.mark.parametrize("role", ["master", "pserver", "trainer"])
def test_one_image_for_all_roles(role, spec, expected):
    assert main_of(role, master={}, pserver={"min-instance": 1}, **spec)["image"] == expected


# --- commands ------------------------------------------------------------------------------------------------------------
@pytest.mark.rule("TJ:2.2")
@pytest.mark.parametrize(
    ("role", "spec", "command"),
    [
        pytest.param("master", {"fault_tolerant": True}, "start_master", id="a master is a master"),
        pytest.param("pserver", {"fault_tolerant": True}, "start_new_pserver", id="a fault-tolerant pserver"),
        pytest.param("trainer", {"fault_tolerant": True}, "start_new_trainer", id="a fault-tolerant trainer"),
        pytest.param("pserver", {"fault_tolerant": False, "high": 2}, "start_pserver", id="a plain pserver"),
        pytest.param("trainer", {"fault_tolerant": False, "high": 2}, "start_trainer", id="a plain trainer"),
        pytest.param("trainer", {"master": {}}, "start_new_trainer", id="elastic with a master is fault tolerant"),
        pytest.param("trainer", {}, "start_trainer", id="without a master trainers do not wait for one"),
        pytest.param(
            "trainer", {"master": {}, "fault_tolerant": False, "high": 2}, "start_trainer", id="not fault tolerant"
        ),
    ],
)
def test_the_launcher_gets_upstreams_commands(role, spec, command):
    assert main_of(role, pserver={"min-instance": 1}, **spec)["command"] == ["paddle_k8s", command]


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize("framework", ["generic", "torchrun"])
def test_other_frameworks_run_the_entrypoint_in_the_workspace(framework):
    trainer = {"entrypoint": "cd a && python b.py", "workspace": "/work"}
    container = main_of(framework=framework, trainer=trainer)
    assert container["command"] == ["/bin/sh", "-c", "cd a && python b.py"]
    assert container["workingDir"] == "/work"


@pytest.mark.parametrize(
    ("role", "spec", "expected"),
    [
        pytest.param("pserver", {}, "python a.py", id="a pserver without one runs the trainers'"),
        pytest.param("pserver", {"pserver": {"min-instance": 1, "entrypoint": "ps"}}, "ps", id="or its own"),
        pytest.param("master", {"master": {"entrypoint": "queue"}}, "queue", id="a master its own"),
        pytest.param("master", {}, None, id="a master without one runs what its image runs"),
    ],
)
def test_each_role_may_have_an_entrypoint(role, spec, expected):
    everything = {"master": {}, "pserver": {"min-instance": 1}, **spec}
    container = main_of(role, framework="generic", trainer={"entrypoint": "python a.py"}, **everything)
    assert container.get("command") == (["/bin/sh", "-c", expected] if expected else None)


@pytest.mark.rule("TJ:2.2")
def test_only_the_launcher_needs_an_etcd():
    containers = {
        framework: pod_of("master", master={}, framework=framework)["spec"]["containers"]
        for framework in ("paddle", "generic", "torchrun")
    }
    assert [[c["name"] for c in found] for found in containers.values()] == [["master", "etcd"], ["master"], ["master"]]
    assert [port["name"] for port in containers["generic"][0]["ports"]] == ["master-port"]


@pytest.mark.rule("FD:SEC-F9")
@pytest.mark.parametrize(
    ("is_tolerant", "expected"),
    [
        pytest.param(True, "http://127.0.0.1:2379,http://$(POD_IP):2379", id="other pods use it too"),
        pytest.param(False, "http://127.0.0.1:2379", id="only the master uses it"),
    ],
)
def test_etcd_listens_on_the_pod_ip_only_for_fault_tolerant_jobs(is_tolerant, expected):
    etcd = pod_of("master", master={}, fault_tolerant=is_tolerant)["spec"]["containers"][1]
    flags = dict(zip(etcd["command"][1::2], etcd["command"][2::2], strict=True))
    assert flags["-listen-client-urls"] == expected
    assert flags["-listen-peer-urls"] == "http://127.0.0.1:2380"
    assert "0.0.0.0" not in " ".join(etcd["command"])


@pytest.mark.rule("FD:SEC-F9")
def test_the_etcd_image_is_the_one_the_operator_is_configured_with():
    config = replace(CONFIG, etcd_image="registry.example/etcd@sha256:1")
    pod = build_pod(parsed_job(master={}), constants.MASTER, 0, Size(2, 1), config)
    assert pod["spec"]["containers"][1]["image"] == "registry.example/etcd@sha256:1"


# --- the rest of a role ---------------------------------------------------------------------------------------------------
@pytest.mark.rule("TJ:2.2", "TJ:3-3")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"fault_tolerant": True}, id="a master that is not configured"),
        pytest.param({"master": {}}, id="a master without resources"),
    ],
)
def test_a_bare_master_gets_upstreams_resources(spec):
    assert main_of("master", **spec)["resources"] == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "500Mi"},
    }


@pytest.mark.rule("TJ:2.2")
def test_volumes_and_mounts_are_in_pods_of_all_three_roles():
    volume, mount = {"name": "data", "emptyDir": {}}, {"name": "data", "mountPath": "/data"}
    for role in constants.ROLES:
        pod = pod_of(role, volumes=[volume], VolumeMounts=[mount], master={}, pserver={"min-instance": 1})
        assert pod["spec"]["volumes"][0] == volume
        assert pod["spec"]["containers"][0]["volumeMounts"][0] == mount


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize("role", ["master", "pserver", "trainer"])
@pytest.mark.parametrize(
    ("spec", "field", "expected"),
    [
        pytest.param({"host_network": True}, "hostNetwork", True, id="the host's network"),
        pytest.param({"hostNetwork": True}, "dnsPolicy", "ClusterFirstWithHostNet", id="where names still resolve"),
        pytest.param({}, "hostNetwork", None, id="not by default"),
        pytest.param({"imagePullSecrets": [{"name": "a"}]}, "imagePullSecrets", [{"name": "a"}], id="pull secrets"),
        pytest.param({"schedulerName": "volcano"}, "schedulerName", "volcano", id="another scheduler"),
        pytest.param({"priorityClassName": "high"}, "priorityClassName", "high", id="a priority class"),
        pytest.param({}, "restartPolicy", "Never", id="the job decides about restarts"),
        pytest.param({}, "terminationGracePeriodSeconds", None, id="Kubernetes' own grace period"),
    ],
)
def test_fields_of_the_job_are_set_in_every_pod(role, spec, field, expected):
    assert pod_of(role, master={}, pserver={"min-instance": 1}, **spec)["spec"].get(field) == expected


@pytest.mark.rule("TJ:2.1")
def test_the_group_of_a_gang_scheduler_is_annotated():
    plain = pod_of()["metadata"]["annotations"]
    assert list(plain) == [constants.MEMBERSHIP_ANNOTATION]
    assert pod_of(podGroupName="gang")["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": "gang", **plain}
    assert "annotations" not in pod_of("master", master={})["metadata"], "it mounts no membership"


@pytest.mark.rule("TJ:2.2")
@pytest.mark.parametrize(
    ("role", "spec", "expected"),
    [
        pytest.param("trainer", {}, "Always", id="trainers always pull"),
        pytest.param("pserver", {}, None, id="a pserver as Kubernetes thinks best"),
        pytest.param("trainer", {"imagePullPolicy": "IfNotPresent"}, "IfNotPresent", id="a trainer as in the job"),
        pytest.param("pserver", {"imagePullPolicy": "Never"}, "Never", id="a pserver as in the job"),
    ],
)
def test_when_images_are_pulled(role, spec, expected):
    assert main_of(role, pserver={"min-instance": 1}, **spec).get("imagePullPolicy") == expected


ROLE_SPEC: dict[str, Any] = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "gracePeriodSeconds": 90,
    "preStopCmd": ["/bin/save", "--now"],
    "livenessProbe": {"exec": {"command": ["true"]}},
    "readinessProbe": {"tcpSocket": {"port": 7164}},
    "imagePullSecrets": [{"name": "own"}],
}
UPSTREAMS_SPELLING: dict[str, Any] = {
    "node_selector": ROLE_SPEC["nodeSelector"],
    "tolerations": ROLE_SPEC["tolerations"],
    "grace_period_seconds": 90,
    "pre_stop_cmd": ROLE_SPEC["preStopCmd"],
    "liveness_probe": ROLE_SPEC["livenessProbe"],
    "readiness_probe": ROLE_SPEC["readinessProbe"],
    "imagePullSecrets": [{"name": "own"}],
}


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize("written", [ROLE_SPEC, UPSTREAMS_SPELLING], ids=["our spelling", "upstream's spelling"])
@pytest.mark.parametrize("role", ["master", "pserver", "trainer"])
def test_fields_of_a_role_are_set_in_its_pods_only(role, written):
    bare: dict[str, Any] = {"master": {}, "pserver": {"min-instance": 1}, "trainer": {}}
    spec = {**bare, role: {**bare[role], **written}}
    for each in constants.ROLES:
        pod = pod_of(each, imagePullSecrets=[{"name": "all"}], **spec)["spec"]
        main = pod["containers"][0]
        is_set = each == role
        assert pod.get("nodeSelector") == (ROLE_SPEC["nodeSelector"] if is_set else None)
        assert pod.get("tolerations") == (ROLE_SPEC["tolerations"] if is_set else None)
        assert pod.get("terminationGracePeriodSeconds") == (90 if is_set else None)
        assert main.get("livenessProbe") == (ROLE_SPEC["livenessProbe"] if is_set else None)
        assert main.get("readinessProbe") == (ROLE_SPEC["readinessProbe"] if is_set else None)
        hook = {"preStop": {"exec": {"command": ["/bin/save", "--now"]}}}
        assert main.get("lifecycle") == (hook if is_set else None)
        assert pod["imagePullSecrets"] == [{"name": "all"}, *([{"name": "own"}] if is_set else [])]


def test_a_hook_written_as_a_line_runs_in_a_shell():
    container = main_of(trainer={"preStopCmd": "save && sync"})
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["/bin/sh", "-c", "save && sync"]


# --- the user's template --------------------------------------------------------------------------------------------------
@pytest.mark.rule("TJ:8", "TJ:8-template")
def test_a_template_is_laid_over_the_pod_of_its_role_only():
    template = {
        "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "x"}},
        "spec": {
            "serviceAccountName": "trainer",
            "securityContext": {"runAsNonRoot": True},
            "containers": [
                {"name": "trainer", "workingDir": "/here", "env": [{"name": "ENTRY", "value": "mine"}]},
                {"name": "beside", "image": "proxy:1"},
            ],
        },
    }
    spec = {"trainer": {"template": template}, "pserver": {"min-instance": 1}}
    pod = pod_of(**spec)
    main, beside = pod["spec"]["containers"]
    assert pod["metadata"]["labels"]["team"] == "vision"
    assert pod["metadata"]["annotations"]["note"] == "x"
    assert pod["spec"]["serviceAccountName"] == "trainer"
    assert pod["spec"]["securityContext"] == {"runAsNonRoot": True}
    assert (main["workingDir"], values_of(main)["ENTRY"], values_of(main)["TRAINERS"]) == ("/here", "mine", "2")
    assert beside == {"name": "beside", "image": "proxy:1"}
    assert pod_of("pserver", **spec) == pod_of("pserver", pserver={"min-instance": 1})


def test_a_template_cannot_take_a_pod_away_from_its_job():
    template = {
        "metadata": {
            "name": "other",
            "labels": dict.fromkeys(
                (constants.JOB_LABEL, constants.ROLE_LABEL, constants.INDEX_LABEL, "paddle-job"), "other"
            ),
            "ownerReferences": [],
        }
    }
    assert pod_of(trainer={"template": template})["metadata"] == pod_of()["metadata"]


@pytest.mark.rule("TJ:8-template")
@pytest.mark.parametrize(
    "label",
    [
        pytest.param("paddle-job-master", id="another role's, by which Paddle lists its peers"),
        pytest.param(constants.INDEX_LABEL, id="an index, which a master has not"),
        pytest.param("raytide.io/anything", id="a label of Raytide"),
        pytest.param("ray.io/cluster", id="a RayCluster's, whose service would send it requests"),
    ],
)
def test_a_template_cannot_pass_a_pod_off_as_another_owners(label):
    template = {"metadata": {"labels": {label: "other", "team": "vision"}}}
    role = constants.MASTER if label == constants.INDEX_LABEL else constants.TRAINER
    labels = pod_of(role, master={"template": template}, trainer={"template": template})["metadata"]["labels"]
    assert label not in labels
    assert labels["team"] == "vision"


def test_building_changes_nothing_of_the_job():
    job = seed_job(
        trainer={"min-instance": 1, "template": {"spec": {"containers": [{"name": "trainer", "image": "a"}]}}}
    )
    before = job.model_copy(deep=True)
    first = build_pod(job, constants.TRAINER, 0, Size(1, 3), CONFIG)
    assert build_pod(job, constants.TRAINER, 0, Size(1, 3), CONFIG) == first
    assert job == before


# --- the planned node -------------------------------------------------------------------------------------------------

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OURS = {
    "weight": 100,
    "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1.example.com"]}]},
}
THEIRS = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [THEIRS["preference"]]}}


def affinity_of(**spec):
    job = parsed_job(trainer={"template": {"spec": spec}} if spec else {})
    (pod,) = build_pods(job, constants.TRAINER, {0: "node-1.example.com"}, Size(2, 0), CONFIG)
    return pod["spec"].get("affinity")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param({}, {"nodeAffinity": {PREFERRED: [OURS]}}, id="preferred"),
        pytest.param(
            {"affinity": {"nodeAffinity": REQUIRED}},
            {"nodeAffinity": {PREFERRED: [OURS], **REQUIRED}},
            id="in addition to the user's required affinity",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {PREFERRED: [THEIRS]}}},
            {"nodeAffinity": {PREFERRED: [THEIRS]}},
            id="the user's preferences replace it",
        ),
        pytest.param({"affinity": None}, None, id="and so does an explicit null"),
        pytest.param(
            {"affinity": {"podAntiAffinity": {PREFERRED: []}}},
            {"podAntiAffinity": {PREFERRED: []}},
            id="not where pods are kept apart",
        ),
        pytest.param({"affinity": {"podAffinity": {}}}, {"podAffinity": {}}, id="nor together"),
        pytest.param({"topologySpreadConstraints": []}, None, id="nor spread"),
    ],
)
def test_a_trainer_prefers_its_planned_node_unless_the_template_has_preferences(template, expected):
    assert affinity_of(**template) == expected


def test_a_preference_is_no_constraint_for_sharing():
    """Otherwise a pending trainer would be counted as one that may run on a single node."""
    (planned,) = build_pods(parsed_job(), constants.TRAINER, {0: "node-1"}, Size(2, 0), CONFIG)
    (other,) = build_pods(parsed_job(), constants.TRAINER, {0: ""}, Size(2, 0), CONFIG)
    assert "affinity" not in other["spec"]
    assert capacity_pod_from_object(planned).shape == capacity_pod_from_object(other).shape
