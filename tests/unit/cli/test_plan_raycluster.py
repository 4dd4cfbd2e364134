"""RayClusters in `raytide plan --submit`: their pods, what those lack, and what TrainingJobs have less because of them."""

import json

import pytest
from click.testing import CliRunner

from raytide.cli import main
from support.plan_snapshots import NOW, as_documents, as_list, job, node, priority_class, quota

pytestmark = pytest.mark.rule("TJ:7.15")


def template(cpu, gpu=0, **spec):
    amounts = {"cpu": str(cpu), **({"nvidia.com/gpu": str(gpu)} if gpu else {})}
    resources = {"requests": amounts, "limits": amounts}
    return {"spec": {"containers": [{"name": "ray", "image": "ray:2.60.0", "resources": resources}], **spec}}


def group(name="cpu", replicas=2, *, cpu=1, gpu=0, pod=None, **fields):
    return {"groupName": name, "replicas": replicas, "template": template(cpu, gpu, **(pod or {})), **fields}


def raycluster(*groups, head=1, annotations=None, **spec):
    metadata = {"name": "ray", "annotations": annotations or {}}
    head_group = {"template": template(head)}
    spec = {"rayVersion": "2.60.0", "headGroupSpec": head_group, "workerGroupSpecs": list(groups), **spec}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


@pytest.fixture
def submit(tmp_path):
    def call(snapshot, *new, output="table"):
        file = tmp_path / "new.yaml"
        file.write_text(as_documents(*new))
        args = ["plan", "--at", NOW, "-f", "-", "--submit", str(file), "-o", output]
        return CliRunner().invoke(main, args, input=snapshot)

    return call


@pytest.fixture
def effect(submit):
    """The sentences."""

    def call(snapshot, *new):
        result = submit(snapshot, *new)
        assert result.exit_code == 0, result.output
        return [line.strip() for line in result.stdout.split("\n\n")[-1].splitlines()[1:]]

    return call


@pytest.fixture
def groups(submit):
    """Name -> scheduled, pending and rejected pods, of the head too."""

    def call(snapshot, *new):
        result = submit(snapshot, *new, output="json")
        assert result.exit_code == 0, result.output
        (found,) = json.loads(result.stdout)["rayClusters"]
        parts = {"head": found["head"], **{each["name"]: each for each in found["groups"]}}
        return {name: (each["scheduled"], each["pending"], each["rejected"]) for name, each in parts.items()}

    return call


def test_a_raycluster_takes_capacity_that_jobs_then_have_less_of(effect):
    cluster = as_list(node(cpu=10), job("a", 1, 20, 1))
    assert effect(cluster, raycluster(group(replicas=3, cpu=2))) == [
        "RayCluster default/ray gets its head and 3 of 3 workers",
        "default/a grows by 7 less (1 -> 3, not 10)",
    ]


def test_what_a_pending_pod_lacks_is_said(effect):
    assert effect(as_list(node(cpu=8, gpu=1)), raycluster(group("gpu", 2, gpu=1))) == [
        "RayCluster default/ray gets its head and 1 of 2 workers",
        (
            "RayCluster default/ray: 1 pod of group gpu stays Pending: node node-1 comes closest: it lacks 1 nvidia.com/gpu"
            " (it requests 1 nvidia.com/gpu; 0 of 1 free)"
        ),
        "the size of no job changes",
    ]


def test_both_kinds_in_one_file(submit):
    result = submit(as_list(node(cpu=8)), raycluster(group()), job("c", 2, 4))
    assert "If default/c and RayCluster default/ray were submitted:" in result.stdout
    assert "default/c starts with 4 of 2 to 4" in result.stdout


@pytest.mark.parametrize(
    ("new", "found"),
    [
        pytest.param(raycluster(), {"head": (1, 0, 0)}, id="a head only"),
        pytest.param(raycluster(head=9), {"head": (0, 1, 0)}, id="a head that fits nowhere"),
        pytest.param(raycluster(group(minReplicas=3)), {"head": (1, 0, 0), "cpu": (3, 0, 0)}, id="at least the minimum"),
        pytest.param(raycluster(group(numOfHosts=2)), {"head": (1, 0, 0), "cpu": (4, 0, 0)}, id="multi-host"),
        pytest.param(raycluster(group(), suspend=True), {"head": (0, 0, 0), "cpu": (0, 0, 0)}, id="suspended"),
        pytest.param(raycluster(group(suspend=True)), {"head": (1, 0, 0), "cpu": (0, 0, 0)}, id="a suspended group"),
        pytest.param(
            raycluster(group(replicas=7), enableInTreeAutoscaling=True),
            {"head": (1, 0, 0), "cpu": (6, 1, 0)},
            id="the autoscaler's container requests 500m",
        ),
        pytest.param(raycluster(group(replicas=7)), {"head": (1, 0, 0), "cpu": (7, 0, 0)}, id="no autoscaler"),
        pytest.param(
            raycluster(group(pod={"schedulingGates": [{"name": "queue"}]})), {"head": (1, 0, 0), "cpu": (0, 2, 0)}, id="gated"
        ),
        pytest.param(
            raycluster(group(replicas=8, pod={"priorityClassName": "gold"})),
            {"head": (0, 1, 0), "cpu": (8, 0, 0)},
            id="pods of a higher priority come first",
        ),
    ],
)  # fmt: skip
def test_the_pods_are_those_of_the_controller(groups, new, found):
    assert groups(as_list(node(cpu=8), priority_class("gold", 1000)), new) == found


@pytest.mark.parametrize(
    ("limits", "group_fields", "found"),
    [
        pytest.param({"pods": "2"}, {}, {"head": (1, 0, 0), "cpu": (1, 0, 1)}, id="pods"),
        pytest.param({"requests.cpu": "2500m"}, {}, {"head": (1, 0, 0), "cpu": (1, 0, 1)}, id="cpu"),
        pytest.param({"pods": "4"}, {"numOfHosts": 2}, {"head": (1, 0, 0), "cpu": (2, 0, 2)}, id="whole replicas"),
        pytest.param({"pods": "0"}, {}, {"head": (0, 0, 1), "cpu": (0, 0, 2)}, id="nothing"),
    ],
)
def test_pods_count_in_resourcequotas(groups, limits, group_fields, found):
    assert groups(as_list(node(cpu=20), quota(**limits)), raycluster(group(**group_fields))) == found


@pytest.mark.parametrize(
    ("scope", "pod", "rejected"),
    [
        ("Terminating", {"activeDeadlineSeconds": 60}, 2),
        ("Terminating", {}, 0),
        ("NotTerminating", {"activeDeadlineSeconds": 60}, 0),
        ("BestEffort", {}, 0),
        ("NotBestEffort", {}, 2),
    ],
)
def test_quotas_with_scopes(groups, scope, pod, rejected):
    scoped = quota(pods="1" if scope.startswith("Not") else "0")
    scoped["spec"]["scopes"] = [scope]
    assert groups(as_list(node(cpu=20), scoped), raycluster(group(pod=pod)))["cpu"][2] == rejected


def test_the_quota_is_named_with_what_it_allows(effect):
    lines = effect(as_list(node(cpu=20), quota(pods="2")), raycluster(group(numOfHosts=3)))
    assert lines[1] == (
        "RayCluster default/ray: 6 pods of group cpu are not created: ResourceQuota default/quota allows 1 more of pods;"
        " the 3 hosts of a replica need 3"
    )


def test_pods_that_a_quota_rejects_are_created_when_a_job_is_scaled_down(groups):
    """The pending job of 3 reclaims trainers, whose pods then count no more in the quota."""
    there = job("a", 1, 6, 6, scaling={"rebalance": False})
    cluster = as_list(node(cpu=9.5), there, quota(used={"pods": "6"}, pods="7"))
    new = job("c", 2, 2, cpu=3, namespace="other")
    assert groups(cluster, raycluster(group(replicas=1, cpu="100m")), new)["cpu"][0] == 1


def test_an_autoscaled_cluster_may_become_larger(effect):
    new = raycluster(group(maxReplicas=5), enableInTreeAutoscaling=True)
    assert "RayCluster default/ray: its autoscaler may add workers, up to 5, when Ray's demand needs them" in effect(
        as_list(node(cpu=20)), new
    )


def test_as_many_pods_as_the_bound_are_predicted(effect):
    new = raycluster(group(replicas=900_000, maxReplicas=1_000_000, cpu="1m"))
    (first, second, *_) = effect(as_list(*(node(f"n{number}", cpu=10) for number in range(9))), new)
    assert first == "RayCluster default/ray gets its head and 445 of 900000 workers"
    assert second.startswith("RayCluster default/ray: 2554 pods of group cpu stay Pending: node n0 comes closest")


def test_the_bound_is_that_of_all_rayclusters_together(effect):
    many = [raycluster(group(replicas=900_000, maxReplicas=1_000_000, cpu="1m"), head="1m") for _ in range(3)]
    for number, each in enumerate(many):
        each["metadata"]["name"] = f"ray-{number}"
    lines = effect(as_list(node(cpu=10)), *many)
    assert "RayCluster default/ray-2 gets no head and 0 of 900000 workers" in lines
    assert "RayCluster default/ray-2: the head: a prediction has at most 3000 pods of RayClusters" in lines


def test_a_group_with_the_name_of_the_heads_group_is_a_group_of_workers(groups):
    assert groups(as_list(node(cpu=20)), raycluster(group("headgroup"))) == {"head": (1, 0, 0), "headgroup": (2, 0, 0)}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("metadata: {name: a, namespace: 5}", "metadata.namespace is not a string", id="namespace"),
        pytest.param(
            "metadata: {name: a, annotations: [x]}", "metadata.annotations is not a mapping", id="annotations"
        ),
        pytest.param("metadata: {name: a}\nspec: {1: x}", "spec has a key that is not a string", id="key"),
        pytest.param(
            f"metadata: {{name: a}}\nspec: {{workerGroupSpecs: [{{replicas: 0x{'F' * 6000}}}]}}",
            "spec.workerGroupSpecs[0].replicas is not a value that JSON has, or too large",
            id="a number of 6,000 digits",
        ),
        pytest.param("metadata: {name: a}\nspec: !!set {b}", "spec is not a value", id="set"),
        pytest.param("metadata: {name: a}\nspec: .inf", "spec is not a value", id="infinity"),
        pytest.param("metadata: {name: a}\nspec: !!binary YQ==", "spec is not a value", id="bytes"),
    ],
)
def test_yaml_that_no_api_server_can_be_sent(tmp_path, text, sentence):
    for kind in ("ray.io/v1\nkind: RayCluster", "paddlepaddle.org/v1\nkind: TrainingJob"):
        file = tmp_path / "new.yaml"
        file.write_text(f"apiVersion: {kind}\n{text}\n")
        result = CliRunner().invoke(main, ["plan", "-f", "-", "--submit", str(file)], input=as_list(node(cpu=1)))
        assert result.exit_code == 2, result.output
        assert sentence in result.stderr


def test_a_priority_class_that_is_no_string(submit):
    result = submit(as_list(node(cpu=1)), raycluster(group(pod={"priorityClassName": {"a": "b"}})))
    assert result.exit_code == 2
    assert "priorityClassName of group cpu is not a string" in result.stderr


def test_a_raycluster_in_the_snapshot_cannot_be_submitted(submit):
    there = raycluster()
    result = submit(as_list(node(cpu=1), there), raycluster())
    assert (
        result.exit_code,
        "RayCluster default/ray exists already; submit it under another name" in result.stderr,
    ) == (2, True)
