"""The configuration of the kind cluster, for the installed Docker and for nodes of an image that is made here."""

from pathlib import Path

import pytest
import yaml

import kind_config
from kind_config import OwnNodes, Route

TEXT = (Path(__file__).parents[3] / "e2e" / "kind.yaml").read_text()
OWN = OwnNodes(("/var/lib/kind/0", "/var/lib/kind/1", "/var/lib/kind/2"), has_cgroup_v1=True)


def mounts(made):
    return [{each["hostPath"]: each["containerPath"] for each in node.get("extraMounts", [])} for node in made["nodes"]]


def test_with_the_installed_docker_the_nodes_are_kinds_own_and_the_api_server_has_an_audit_log():
    made = kind_config.cluster(TEXT, "/home/user/audit")
    assert mounts(made) == [{"/home/user/audit": "/var/log/raytide-audit"}, {}, {}]
    assert "networking" not in made
    assert "kubeadmConfigPatches" not in made
    (patch,) = made["nodes"][0]["kubeadmConfigPatches"]
    server = yaml.safe_load(patch)["apiServer"]
    assert server["extraArgs"]["audit-log-path"] == "/var/log/raytide-audit/audit.log"
    assert [volume["mountPath"] for volume in server["extraVolumes"]] == ["/var/log/raytide-audit"]


def test_nodes_that_are_made_here_have_images_a_network_and_the_reported_processors():
    made = kind_config.cluster(TEXT, "/audit", OWN)
    assert made["networking"] == {"disableDefaultCNI": True}
    for number, found in enumerate(mounts(made)):
        assert found[f"/var/lib/kind/{number}"] == "/var/lib/containerd"
        assert found["/sys/devices/system/cpu"] == "/sys/devices/system/cpu"
    assert "/audit" in mounts(made)[0]


@pytest.mark.parametrize(("has_cgroup_v1", "expected"), [(True, [False]), (False, [])], ids=["version 1", "version 2"])
def test_the_kubelet_starts_with_cgroups_of(has_cgroup_v1, expected):
    nodes = OwnNodes(OWN.containerd, has_cgroup_v1)
    patches = [yaml.safe_load(patch) for patch in nodes.patches]
    assert [patch["failCgroupV1"] for patch in patches if patch["kind"] == "KubeletConfiguration"] == expected


def node(name, address, pods=""):
    spec = {"podCIDR": pods} if pods else {}
    addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]
    return {"metadata": {"name": name}, "spec": spec, "status": {"addresses": addresses}}


def test_each_node_has_a_route_to_the_pods_of_each_other_node():
    found = kind_config.routes([node("a", "172.18.0.2", "10.244.0.0/24"), node("b", "172.18.0.3", "10.244.1.0/24")])
    assert found == [Route("a", "10.244.1.0/24", "172.18.0.3"), Route("b", "10.244.0.0/24", "172.18.0.2")]
    assert found[0].command == ["ip", "route", "replace", "10.244.1.0/24", "via", "172.18.0.3"]


def test_a_node_without_pod_addresses_is_no_node_yet():
    with pytest.raises(LookupError):
        kind_config.routes([node("a", "172.18.0.2", "10.244.0.0/24"), node("b", "172.18.0.3")])
