"""Which cgroup hierarchies a machine has, and how a node's group is made and removed."""

from pathlib import Path

import node_cgroups
from node_cgroups import Cgroups, parse_mounts

HYBRID = """\
tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""


def test_of_a_hybrid_machine_version_1_counts():
    found = parse_mounts(HYBRID, "")
    assert found.version == 1
    assert found.controllers == {"cpu", "cpuacct", "memory"}
    assert [path.name for path in found.folders] == ["cpu,cpuacct", "memory", "systemd", "unified"]
    assert found.missing == ("cpuset", "pids", "devices", "freezer")


def test_version_2_has_one_hierarchy():
    found = parse_mounts("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "cpuset cpu io memory pids\n")
    assert (found.version, found.folders, found.missing) == (2, (Path("/sys/fs/cgroup"),), ())


def test_without_a_mount_there_is_no_version():
    assert parse_mounts("proc /proc proc rw 0 0\n", "") == Cgroups(0, frozenset(), ())


def test_a_group_of_version_1_takes_the_processors_of_the_machine(tmp_path):
    for name, text in (("cpuset.cpus", "0-1\n"), ("cpuset.mems", "0\n")):
        (tmp_path / name).write_text(text)
    node_cgroups.create(Cgroups(1, frozenset({"cpuset"}), (tmp_path,)), "raytide-node-1")
    assert (tmp_path / "raytide-node-1" / "cpuset.cpus").read_text() == "0-1\n"
    assert (tmp_path / "raytide-node-1" / "cpuset.mems").read_text() == "0\n"


def test_a_group_of_version_2_gets_the_controllers(tmp_path):
    node_cgroups.create(Cgroups(2, frozenset({"memory"}), (tmp_path,)), "raytide-node-1")
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +cpuset +memory +pids"
    assert (tmp_path / "raytide-node-1").is_dir()


def test_removal_takes_children_first_and_nothing_else(tmp_path):
    for name in ("raytide-node-1/kubepods/besteffort/pod1", "raytide-node-1/system", "raytide-node-2", "user"):
        (tmp_path / name).mkdir(parents=True)
    assert node_cgroups.remove([tmp_path], "raytide-node-1") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raytide-node-2", "user"]


def test_a_group_that_cannot_be_removed_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(node_cgroups, "REMOVAL_S", 0.0)
    (tmp_path / "raytide-node-1").mkdir()
    (tmp_path / "raytide-node-1" / "a-process").touch()  # a folder that is not empty stands in for a group in use
    assert node_cgroups.remove([tmp_path], "raytide-node-1") == [tmp_path / "raytide-node-1"]


def test_controllers_that_the_kubelet_passed_on_are_taken_back(tmp_path):
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("cpu memory")
    before = {str(tmp_path): sorted(node_cgroups.delegated(tmp_path))}
    control.write_text("cpu cpuset memory")
    node_cgroups.restore([tmp_path, tmp_path / "version-1"], before)
    assert control.read_text() == "-cpuset"


def test_without_a_record_no_controller_is_taken_back(tmp_path):
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory")
    node_cgroups.restore([tmp_path], {})
    assert (tmp_path / "cgroup.subtree_control").read_text() == "cpu memory"
