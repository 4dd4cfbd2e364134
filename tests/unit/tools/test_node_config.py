"""Configuration files of a node of `make e2e ON=node`."""

import json
import tomllib
from dataclasses import replace

import pytest
import yaml

import node_config
from node_config import NodeConfig
from node_settings import NodeSettings, Report

CONFIG = NodeConfig("node-1", "raytide-node-0", "overlayfs", may_lower_oom_scores=False, iptables="nft", cpus=8)


def cri(config):
    return tomllib.loads(node_config.containerd(config))["plugins"]["io.containerd.grpc.v1.cri"]


@pytest.mark.parametrize(("may_lower", "restricts"), [(True, False), (False, True)])
def test_runc_is_not_asked_for_oom_scores_that_root_may_not_set(may_lower, restricts):
    assert cri(replace(CONFIG, may_lower_oom_scores=may_lower))["restrict_oom_score_adj"] is restricts


def test_containerd_finds_layers_pause_and_pod_network():
    plugin = cri(replace(CONFIG, snapshotter="native"))
    assert plugin["containerd"]["snapshotter"] == "native"
    assert plugin["sandbox_image"] == node_config.PAUSE_IMAGE
    assert plugin["cni"]["conf_dir"] == "/etc/raytide/cni"


def test_all_pods_are_below_the_nodes_own_cgroup():
    kubelet = node_config.kubelet(CONFIG)
    assert (kubelet["cgroupRoot"], kubelet["cgroupDriver"]) == ("/raytide-node-0", "cgroupfs")
    assert kubelet["failCgroupV1"] is False, "kubelet 1.35 refuses version 1 by default"


def test_the_kubelet_lets_in_whom_the_api_server_knows():
    kubelet = node_config.kubelet(CONFIG)
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["authorization"] == {"mode": "Webhook"}
    assert kubelet["address"] == node_config.NODE_ADDRESS


def test_kube_proxy_leaves_limits_of_the_whole_machine_alone():
    assert set(node_config.kube_proxy(CONFIG)["conntrack"].values()) == {0, "0s"}


def test_pods_resolve_names_with_the_address_of_the_dns_service():
    (service, *_) = node_config.dns_objects()
    files = node_config.files(CONFIG)
    kubelet = yaml.safe_load(files["kubelet.yaml"])
    assert [service["spec"]["clusterIP"]] == kubelet["clusterDNS"] == [node_config.DNS_ADDRESS]
    assert f"bind {node_config.NODE_ADDRESS}" in files["Corefile"]


def test_every_address_belongs_to_one_network():
    network = json.loads(node_config.files(CONFIG)["cni/10-pods.conflist"])["plugins"][0]["ipam"]["ranges"]
    assert network == [[{"subnet": node_config.POD_NETWORK}]]
    assert node_config.kube_proxy(CONFIG)["clusterCIDR"] == node_config.POD_NETWORK


def test_coredns_may_only_read():
    roles = [each for each in node_config.dns_objects() if each["kind"] == "ClusterRole"]
    assert {verb for role in roles for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_programs_get_the_iptables_that_the_kernel_takes(backend, tmp_path):
    programs = tmp_path / "usr" / "sbin"
    programs.mkdir(parents=True)
    for name in (
        "iptables-nft",
        "iptables-legacy",
        "iptables-nft-restore",
        "iptables-legacy-restore",
        "iptables-apply",
    ):
        (programs / name).touch()
    links = node_config.iptables_programs(tmp_path)
    assert links[f"iptables-{backend}/iptables"] == f"/usr/sbin/iptables-{backend}"
    assert links[f"iptables-{backend}/iptables-restore"] == f"/usr/sbin/iptables-{backend}-restore"
    assert len(links) == 4
    assert replace(CONFIG, iptables=backend).path.split(":")[0] == f"/etc/raytide/iptables-{backend}"


# --- values that pass between the processes of a node --------------------------------------------------------------------------------
def test_settings_survive_json(tmp_path):
    settings = NodeSettings(
        state=tmp_path,
        packages=tmp_path / "packages",
        programs=tmp_path / "programs",
        control_plane=tmp_path / "controlplane",
        kubectl=tmp_path / "kubectl",
        kept_images=(tmp_path / "ray.tar",),
        images=(tmp_path / "a.tar",),
        stores=tmp_path / "stores",
        cgroup_folders=(tmp_path / "cpu", tmp_path / "memory"),
        config=CONFIG,
        is_tethered=True,
    )
    assert NodeSettings.from_json(settings.to_json()) == settings


def test_a_report_is_one_line():
    report = Report(error="kubelet ended with exit code 1; from /x/kubelet.log:\nfirst\nsecond")
    assert report.to_line().count("\n") == 1
    assert Report.from_line(report.to_line()) == report
