#!/bin/bash
# Entry point of a node: separate the sysctls from those of the machine, set up iptables as Debian's installer does, and execute
# kind's entry point.
#
# A privileged container shares the sysctls of the machine. Those of the network belong to the node; those that the kubelet writes
# (/etc/raytide/sysctl) are files of the node; all others are read-only.
set -euo pipefail

own_sysctls() {
    local proc=/run/raytide-proc name
    mkdir -p "$proc"
    mount -t proc proc "$proc"
    mount --bind /proc/sys /proc/sys
    mount -o remount,bind,ro /proc/sys
    mount --bind "$proc/sys/net" /proc/sys/net
    umount "$proc"
    cd /etc/raytide/sysctl
    find . -type f | while read -r name; do
        mount --bind "$name" "/proc/sys/$name"
    done
    cd /
}

iptables_alternatives() {
    local program backend path
    mkdir -p /etc/alternatives /var/lib/dpkg/alternatives /var/log
    for program in iptables ip6tables; do
        for backend in legacy nft; do
            path=/usr/sbin/$program-$backend
            update-alternatives --quiet --install "/usr/sbin/$program" "$program" "$path" 10 \
                --slave "/usr/sbin/$program-restore" "$program-restore" "$path-restore" \
                --slave "/usr/sbin/$program-save" "$program-save" "$path-save"
        done
    done
}

own_sysctls
iptables_alternatives
exec /usr/local/bin/entrypoint "$@"
