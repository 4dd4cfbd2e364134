"""What a Docker daemon of its own needs of the machine."""

import gzip

import pytest

import kind_docker
import node


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Unpacked packages of a release with this systemd."""
    monkeypatch.setattr(kind_docker.debian_root, "provide", lambda _: tmp_path)
    (tmp_path / "usr" / "lib").mkdir(parents=True)

    def release(version):
        folder = tmp_path / "usr" / "share" / "doc" / "libsystemd0"
        folder.mkdir(parents=True)
        with gzip.open(folder / "changelog.Debian.gz", "wt") as file:
            file.write(f"systemd ({version}) stable; urgency=medium\n")
        return tmp_path

    return release


@pytest.mark.parametrize(
    ("version", "has_cgroup_v1"),
    [("252.39-1~deb12u2", True), ("255.4-1ubuntu8", True), ("257.8-1~deb13u2", False)],
    ids=["Debian 12", "Ubuntu 24.04", "a newer one with version 2"],
)
def test_systemd_starts_with_the_cgroups_of_the_machine(packages, version, has_cgroup_v1):
    root = packages(version)
    assert kind_docker._unpack(has_cgroup_v1=has_cgroup_v1) == root
    assert (root / "usr" / "lib" / "modules").is_dir()


def test_a_systemd_that_does_not_start_with_cgroup_version_1_is_a_reason_with_a_remedy(packages):
    packages("257.8-1~deb13u2")
    with pytest.raises(node.NodeMissingError, match="systemd 257 of this release does not start: boot with systemd"):
        kind_docker._unpack(has_cgroup_v1=True)


def test_packages_that_do_not_tell_the_version_are_tried(tmp_path):
    assert kind_docker.systemd_version(tmp_path) == 0
