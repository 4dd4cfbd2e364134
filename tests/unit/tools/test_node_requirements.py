"""What a node of `make e2e ON=node` needs of a machine: each lack has one line with its fix."""

from dataclasses import replace
from pathlib import Path

import pytest

from node_cgroups import parse_mounts
from node_machine import Machine, parse_available_memory, parse_capabilities
from node_requirements import (
    GIB,
    iptables_backend,
    may_lower_oom_scores,
    reported_cpus,
    requirements,
    snapshotter,
    unmet,
)

V1 = "\n".join(
    f"cgroup /sys/fs/cgroup/{name} cgroup rw,{name} 0 0"
    for name in ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
)
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0"
TRIALS = dict.fromkeys(
    ("mount", "net", "pid", "ipc", "uts", "overlay", "bridge", "iptables-nft", "iptables-legacy", "kmsg"), ""
)
GOOD = Machine(
    uid=0,
    capabilities=frozenset({"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_MKNOD", "CAP_SETPCAP", "CAP_SYS_RESOURCE"}),
    trials=TRIALS,
    cgroups=parse_mounts(V1, ""),
    cpus=2,
    memory_bytes=8 * GIB,
    cache=Path("/cache"),
    free_bytes=50 * GIB,
    root=Path("/cache/root"),
)


def test_a_good_machine_lacks_nothing():
    assert unmet(GOOD) == []
    assert unmet(replace(GOOD, cgroups=parse_mounts(V2, "cpuset cpu io memory pids"))) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        pytest.param(
            {"uid": 1000, "trials": {}, "capabilities": frozenset()},
            "root:              no; run `sudo make e2e ON=node`",
            id="no root",
        ),
        pytest.param(
            {"capabilities": frozenset({"CAP_MKNOD", "CAP_NET_ADMIN", "CAP_SETPCAP"})},
            "capabilities:      no CAP_SYS_ADMIN; use the machine itself, or a container with --privileged",
            id="root of a container",
        ),
        pytest.param(
            {"trials": {**TRIALS, "net": "Operation not permitted"}},
            "namespaces:        no net (Operation not permitted); use the machine itself, or a container with --privileged",
            id="no namespaces",
        ),
        pytest.param(
            {"trials": {"mount": "Operation not permitted", "net": "", "pid": "", "ipc": "", "uts": "", "kmsg": ""}},
            "namespaces:        no mount (Operation not permitted); use the machine itself, or a container with --privileged",
            id="nothing in namespaces is tried without them",
        ),
        pytest.param(
            {"trials": {**TRIALS, "bridge": "No such file or directory"}},
            "bridge netfilter:  no (No such file or directory); run `modprobe br_netfilter`",
            id="no br_netfilter",
        ),
        pytest.param(
            {"trials": {**TRIALS, "iptables-nft": "Protocol not supported", "iptables-legacy": "no table"}},
            "iptables:          no (Protocol not supported); run `modprobe -a nf_tables nft_compat nf_nat`",
            id="no iptables",
        ),
        pytest.param(
            {"trials": {**TRIALS, "kmsg": "No such file or directory"}},
            "/dev/kmsg:         no (No such file or directory); the kubelet reads it: use the machine itself, or a container "
            "with --privileged",
            id="no kernel log",
        ),
        pytest.param(
            {"cgroups": parse_mounts("", "")},
            "cgroups:           none; mount them at /sys/fs/cgroup; use the machine itself, or a container with --privileged",
            id="no cgroups",
        ),
        pytest.param(
            {"cgroups": parse_mounts(V2, "cpuset cpu io pids")},
            "cgroups:           version 2 without memory; boot with cgroup_enable=memory",
            id="no memory controller",
        ),
        pytest.param(
            {"packages_error": "there is no apt-get on PATH", "root": None},
            "Debian packages:   there is no apt-get on PATH; use Debian or Ubuntu, with a network and the component main in "
            "/etc/apt/sources.list",
            id="no Debian",
        ),
        pytest.param(
            {"go_error": "Go 1.25.0 or newer is needed, and there is no go on PATH"},
            "Go programs:       Go 1.25.0 or newer is needed, and there is no go on PATH; install it (https://go.dev/dl)",
            id="no Go",
        ),
        pytest.param(
            {"free_bytes": 3 * GIB},
            "disk:              3 GiB free in /cache; free up 12 GiB, or set XDG_CACHE_HOME to a folder on another disk",
            id="a full disk before anything is built",
        ),
        pytest.param(
            {"free_bytes": 3 * GIB, "are_programs_built": True},
            "disk:              3 GiB free in /cache; free up 6 GiB, or set XDG_CACHE_HOME to a folder on another disk",
            id="a full disk",
        ),
        pytest.param(
            {"memory_bytes": GIB},
            "memory:            1 GiB available; 4 GiB are needed: end other programs",
            id="little memory",
        ),
    ],
)
def test_each_lack_is_one_line_with_its_remedy(changes, line):
    assert [requirement.line for requirement in unmet(replace(GOOD, **changes))] == [line]


def test_without_go_programs_that_are_built_do():
    assert unmet(replace(GOOD, go_error="there is no go on PATH", are_programs_built=True)) == []


def test_without_root_nothing_else_is_guessed():
    lines = [each.line for each in requirements(replace(GOOD, uid=1000, trials={}, root=None))]
    assert "Debian packages:   not tried without root" in lines
    assert not any(line.startswith(("namespaces", "iptables")) for line in lines)


# --- settings that follow ---------------------------------------------------------------------------------------------------
def test_an_older_kernel_gets_the_legacy_rules():
    assert iptables_backend(GOOD) == "nft"
    assert iptables_backend(replace(GOOD, trials={**TRIALS, "iptables-nft": "Protocol not supported"})) == "legacy"


def test_without_overlay_mounts_images_are_copied():
    assert snapshotter(GOOD) == "overlayfs"
    machine = replace(GOOD, trials={**TRIALS, "overlay": "Invalid argument"})
    assert (snapshotter(machine), unmet(machine)) == ("native", [])


def test_without_cap_sys_resource_oom_scores_are_not_lowered():
    assert may_lower_oom_scores(GOOD)
    machine = replace(GOOD, capabilities=GOOD.capabilities - {"CAP_SYS_RESOURCE"})
    assert not may_lower_oom_scores(machine)
    assert unmet(machine) == []


@pytest.mark.parametrize(("found", "reported"), [(2, 8), (8, 8), (64, 64)])
def test_a_node_reports_at_least_eight_processors(found, reported):
    assert reported_cpus(replace(GOOD, cpus=found)) == reported


# --- reading ----------------------------------------------------------------------------------------------------------------
def test_capabilities_are_read_from_the_effective_mask():
    status = "CapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\nCapEff:\t000001fffeffffff\n"
    assert parse_capabilities(status) == {"CAP_SETPCAP", "CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_MKNOD"}


def test_available_memory_is_in_bytes():
    assert parse_available_memory("MemTotal: 10 kB\nMemAvailable:   2048 kB\n") == 2048 * 1024
