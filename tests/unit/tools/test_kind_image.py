"""The contents of the images of a kind cluster, without Debian's packages and Go."""

import tarfile

import pytest

import kind_image
from node_images import ImageError

CONTAINERD = """\
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
  discard_unpacked_layers = true
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  base_runtime_spec = "/etc/containerd/cri-base.json"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  restrict_oom_score_adj = false
"""
UNIT = "[Service]\nExecStart=/usr/local/bin/containerd\nOOMScoreAdjust=-999\n"


@pytest.fixture
def base(tmp_path):
    files = {
        "etc/containerd/config.toml": CONTAINERD,
        "etc/systemd/system/containerd.service": UNIT,
        "etc/systemd/system/containerd-fuse-overlayfs.service": "",
        "kind/bin/undo-mount-hacks.sh": "",
        "usr/local/bin/entrypoint": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def found(entries):
    return {entry.name: (entry.mode, (content or b"").decode()) for entry, content in entries}


@pytest.mark.parametrize("may_lower", [True, False], ids=["with CAP_SYS_RESOURCE", "without it"])
def test_the_base_files_of_kind_become_those_of_the_node(base, may_lower):
    files = found(kind_image.base_files(base, may_lower_oom_scores=may_lower))
    assert {name for name, (mode, _) in files.items() if mode == 0o755} == {
        "kind/bin/undo-mount-hacks.sh",
        "usr/local/bin/entrypoint",
    }
    config = files["etc/containerd/config.toml"][1]
    assert 'sandbox_image = "localhost/raytide-pause:1"' in config
    assert "discard_unpacked_layers" not in config
    assert "base_runtime_spec" not in config
    assert f"restrict_oom_score_adj = {'false' if may_lower else 'true'}" in config
    assert ("OOMScoreAdjust" in files["etc/systemd/system/containerd.service"][1]) == may_lower
    assert "etc/systemd/system/containerd-fuse-overlayfs.service" not in files


def test_another_version_of_kind_is_an_error_of_one_line(base):
    (base / "etc" / "containerd" / "config.toml").write_text("version = 3\n")
    with pytest.raises(ImageError, match="is for another version") as error:
        list(kind_image.base_files(base, may_lower_oom_scores=True))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("./lib/systemd/system/multi-user.target.wants/getty.target", False),
        ("./lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service", False),
        ("./lib/systemd/system/sysinit.target.wants/systemd-sysctl.service", True),
        ("./lib/systemd/system/sockets.target.wants/systemd-udevd-kernel.socket", False),
        ("./usr/lib/sysctl.d/50-pid-max.conf", False),
        ("./lib/systemd/systemd", True),
    ],
)
def test_of_debians_packages_a_node_has(name, stays):
    entry = (tarfile.TarInfo(name), b"")
    assert list(kind_image.wanted([entry])) == ([entry] if stays else [])


def test_the_nodes_own_files_hide_the_sysctls_that_the_kubelet_sets():
    files = found(kind_image.settings("v1.35.4"))
    assert files["etc/raytide/sysctl/vm/overcommit_memory"][1] == "1\n"
    assert files["kind/version"][1] == "v1.35.4"
    assert files[kind_image.ENTRYPOINT][0] == 0o755


def test_kube_proxy_finds_the_programs_of_one_backend():
    links = kind_image.iptables_links("nft")
    assert links["usr/sbin/iptables"] == "iptables-nft"
    assert links["usr/sbin/ip6tables-restore"] == "ip6tables-nft-restore"
    assert len(links) == 6
