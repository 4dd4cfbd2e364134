"""How traces of a node on a machine are found."""

import os
import subprocess
import time

import pytest

import node_traces
from support.deadlines import PATIENCE


def found(kind, before, after):
    """Traces and other changes between two snapshots of one kind, each with a single difference."""
    snapshots = {kind: frozenset(before)}, {kind: frozenset(after)}
    return bool(node_traces.traces(*snapshots)), bool(node_traces.other_changes(*snapshots))


def test_equal_snapshots_have_no_traces():
    before = {"sysctls": frozenset({"vm/a=1"}), "mounts": frozenset()}
    assert node_traces.traces(before, before) == node_traces.other_changes(before, before) == []


def test_what_was_added_and_what_was_removed_is_named():
    before = {"sysctls": frozenset({"vm/panic_on_oom=0"}), "mounts": frozenset({"proc /proc"})}
    after = {"sysctls": frozenset({"vm/panic_on_oom=1"}), "mounts": frozenset({"proc /proc", "tmpfs /var/lib/kubelet"})}
    assert node_traces.traces(before, after) == [
        "sysctls: +vm/panic_on_oom=1, -vm/panic_on_oom=0",
        "mounts: +tmpfs /var/lib/kubelet",
    ]


def test_counters_that_nobody_can_set_are_no_settings():
    """The number of terminals, of connections: they change with what else the machine does."""
    names = {line.partition("=")[0] for line in node_traces.snapshot("no such node")["sysctls"]}
    assert names.isdisjoint({"kernel/pty/nr", "net/netfilter/nf_conntrack_count", "kernel/ns_last_pid"})
    assert {"kernel/panic", "kernel/pty/max"} <= names


def test_many_traces_are_counted():
    after = {"folders": frozenset(f"/folder-{number}" for number in range(8))}
    assert node_traces.traces({"folders": frozenset()}, after) == [
        "folders: +/folder-0, +/folder-1, +/folder-2, +/folder-3, +/folder-4 and 3 more"
    ]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("sysctls", "kernel/panic=10"),
        ("sysctls", "net/ipv4/ip_forward=1"),
        ("sysctls", "net/ipv4/conf/all/route_localnet=1"),
        ("rules", "iptables-nft-save: -A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-NPX46M4PTMTKRN6Y"),
        ("links", "cni0"),
        ("routes", "eth0\t0000F40A\t00000000\t0001"),
        ("mounts", "overlay /cache/raytide/node/state/rootfs overlay rw 0 0"),
        ("cgroups", "/sys/fs/cgroup/memory/raytide-node-1234"),
        ("cgroups", "/sys/fs/cgroup/pids/kubepods"),
        ("cgroups", "/sys/fs/cgroup delegates cpuset"),
        ("folders", "/var/lib/kubelet"),
        ("processes", "17 containerd-shim-runc-v2"),
    ],
)
def test_what_a_node_could_leave_is_a_trace(kind, line):
    assert found(kind, [], [line]) == found(kind, [line], []) == (True, False)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("sysctls", "net/ipv4/conf/veth12/forwarding=1"),
        ("rules", "iptables-nft-save: -A DOCKER -j RETURN"),
        ("links", "docker0"),
        ("routes", "docker0\t000011AC\t00000000\t0001"),
        ("mounts", "overlay /var/lib/docker/overlay2/1/merged overlay rw 0 0"),
        ("cgroups", "/sys/fs/cgroup/memory/libpod_parent"),
        ("modules", "xt_comment"),
    ],
)
def test_what_other_programs_do_meanwhile_is_none(kind, line):
    assert found(kind, [], [line]) == found(kind, [line], []) == (False, True)


def test_a_process_is_found_by_its_environment(tmp_path):
    program = subprocess.Popen(["sleep", "30"], env={**os.environ, "NODE": str(tmp_path)})
    try:
        deadline = time.monotonic() + 10 * PATIENCE
        while not (seen := list(node_traces.processes(str(tmp_path)))) and time.monotonic() < deadline:
            os.sched_yield()
        assert seen == [f"{program.pid} sleep 30 "]
        assert list(node_traces.processes(str(tmp_path / "other"))) == []
    finally:
        program.kill()
        program.wait()
