"""Images of a kind cluster that are not pulled from a registry: the node image, and one system image for all pods of kubeadm.

The node image has what kind's base image has: Debian's systemd, containerd and runc, the entry point and the units of kind's module,
and kubelet, kubeadm and kubectl from the Go module proxy. The system image has etcd, API server, controller manager, scheduler,
kube-proxy and CoreDNS, and all names that kubeadm requires. Both are docker-archives in the cache folder, built once, without root
and maintainer scripts. Called by kind_docker.py.
"""

import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import debian_packages
import image_base
import node_images
import node_root
from kind_programs import base_files as base_files_of
from node_config import CNI_PROGRAMS, CONFIGURATION, PAUSE_IMAGE
from node_images import Entry, ImageError, file_entry

NODE_IMAGE = "localhost/raytide-kind-node:dev"
NODE_PACKAGES = (
    "base-files", "base-passwd", "bash", "conntrack", "containerd", "containernetworking-plugins", "coreutils", "dash",
    "debianutils", "dpkg", "ethtool", "findutils", "grep", "hostname", "iproute2", "iptables", "kmod", "libc-bin", "mawk",
    "mount", "netbase", "procps", "runc", "sed", "systemd", "tar", "util-linux",
)  # fmt: skip
SYSTEM_PACKAGES = ("base-files", "conntrack", "iptables", "netbase")
REVISION = 1
"""Increased with each change of another file that changes an image."""
ENTRYPOINT = "usr/local/bin/raytide-entrypoint"
CNI_TEMPLATE = f"{CONFIGURATION}/cni-template.json"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
SERVICES = ("containerd", "kubelet", "undo-mount-hacks")
MASKED = ("systemd-binfmt",)
LEFT_OUT = re.compile(
    r"usr/lib/systemd/system/(?:(?:multi-user|local-fs|basic)\.target\.wants/.|sysinit\.target\.wants/systemd-tmpfiles-setup\."
    r"|sockets\.target\.wants/.*(?:udev|initctl))|usr/lib/sysctl\.d/."
)
"""Units of Debian that kind's Dockerfile removes too, and sysctls of the whole machine."""
LINKS = {
    "usr/sbin/init": "../lib/systemd/systemd",
    "usr/bin/awk": "mawk",
    "usr/bin/which": "which.debianutils",
    "usr/bin/kubelet": "node-programs",
    "opt/cni/bin": CNI_PROGRAMS,
    **{f"usr/local/bin/{name}": f"/usr/bin/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
    **{f"etc/systemd/system/multi-user.target.wants/{name}.service": f"../{name}.service" for name in SERVICES},
    **{f"etc/systemd/system/{name}.service": "/dev/null" for name in MASKED},
}
"""Links that maintainer scripts and kind's Dockerfile create."""


@dataclass(frozen=True)
class KindImages:
    """Sources of the images."""

    kind: Path
    """Folder of the programs of kind_programs.py."""
    node: Path
    """Folder of the programs of node_programs.py."""
    control_plane: Path
    iptables: str
    """`nft` or `legacy`."""
    may_lower_oom_scores: bool

    @property
    def digest(self) -> str:
        """Hash of the sources, except the Debian packages."""
        texts = [path.read_text() for path in (Path(__file__), Path(__file__).with_name("node_entrypoint.sh"))]
        folders = (self.kind, self.node, self.control_plane)
        words = (REVISION, *map(str, folders), self.iptables, self.may_lower_oom_scores, *texts)
        return sha256(repr(words).encode()).hexdigest()[:12]


def node(images: KindImages) -> Path:
    """The archive of the node image; raises ImageError."""
    name = f"kind-node-{images.digest}-{debian_packages.release()}.tar"
    return node_images.once(name, lambda folder, target: _write_node(images, folder, target))


def system(images: KindImages) -> Path:
    """The archive of the system image; raises ImageError."""
    name = f"kind-system-{images.digest}-{debian_packages.release()}.tar"
    return node_images.once(name, lambda folder, target: _write_system(images, folder, target))


def version(kubeadm: Path) -> str:
    """The version of Kubernetes, such as v1.35.4."""
    return _output(kubeadm, "version", "--output=short").strip()


def system_names(kubeadm: Path) -> list[str]:
    """Names of the images in kubeadm's manifests, except the pause image."""
    listed = _output(kubeadm, "config", "images", "list", f"--kubernetes-version={version(kubeadm)}").split()
    return [name for name in listed if "/pause:" not in name]


def _output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{' '.join(map(str, command))} failed: {debian_packages.last_line(done.stderr)}")
    return done.stdout


# --- the node image ------------------------------------------------------------------------------------------------------


def _write_node(images: KindImages, folder: Path, target: Path) -> None:
    kubeadm = images.kind / "kubeadm"
    programs = {"kubeadm": kubeadm, "kubectl": images.kind / "kubectl", "node-programs": images.node / "node"}
    own = [
        *base_files(base_files_of(images.kind), may_lower_oom_scores=images.may_lower_oom_scores),
        *settings(version(kubeadm)),
        *links(LINKS),
        *(file_entry(f"usr/bin/{name}", path.read_bytes(), 0o755) for name, path in programs.items()),
    ]
    layer = _layer(folder, own, NODE_PACKAGES)
    config = {
        "Entrypoint": [f"/{ENTRYPOINT}", "/sbin/init"],
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "container=docker"],
        "StopSignal": "SIGRTMIN+3",
    }
    image_base.write_archive(layer, target, NODE_IMAGE, config)


def _layer(folder: Path, own: Iterable[Entry], packages: tuple[str, ...]) -> Path:
    """A layer with the entries `own` and those of Debian packages with other paths."""
    found = debian_packages.Apt(folder / "apt").download(packages)
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as archive:
        made = image_base.Layer(archive)
        made.add_package(own)
        for package in found:
            made.add_package(wanted(image_base.entries(package)))
        made.finish()
    return layer


def wanted(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries of a package without `LEFT_OUT`."""
    return (each for each in entries if not LEFT_OUT.match(image_base.merged_path(each[0].name)))


def base_files(folder: Path, *, may_lower_oom_scores: bool) -> Iterator[Entry]:
    """Files of kind's base image, with containerd configured for this node; raises ImageError."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or "fuse-overlayfs" in name:
            continue
        content = path.read_bytes()
        if name == "etc/containerd/config.toml":
            content = containerd(content.decode(), may_lower_oom_scores=may_lower_oom_scores).encode()
        if name == "etc/systemd/system/containerd.service" and not may_lower_oom_scores:
            content = substituted(content.decode(), {r"^OOMScoreAdjust=.*\n": ""}).encode()
        yield file_entry(name, content, 0o755 if "bin" in Path(name).parts else 0o644)


def containerd(text: str, *, may_lower_oom_scores: bool) -> str:
    """Change kind's config.toml for Debian's containerd; raises ImageError if it has unexpected content."""
    changes = {
        r"^\s*discard_unpacked_layers = true\n": "",  # the initial images of the node keep their layers
        r"^\s*base_runtime_spec = .*\n": "",  # it hides the machine's product name
        r"(sandbox_image = ).*": rf'\1"{PAUSE_IMAGE}"',
    }
    if not may_lower_oom_scores:
        changes["restrict_oom_score_adj = false"] = "restrict_oom_score_adj = true"
    network = f"""
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PROGRAMS}"
  # the range of addresses of the node's pods, once the kubelet passes it on
  conf_template = "{CNI_TEMPLATE}"
"""
    return substituted(text, changes) + network


def substituted(text: str, changes: Mapping[str, str]) -> str:
    """The text with all matches of each pattern replaced; raises ImageError where a pattern has none."""
    for pattern, replacement in changes.items():
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        if not count:
            raise ImageError(
                f"the base files of kind have no {pattern}: tools/kind/kind_image.py is for another version"
            )
    return text


def settings(kubernetes: str) -> Iterator[Entry]:
    """Files that are not in kind's base image; `kubernetes` is the version."""
    entrypoint = Path(__file__).with_name("node_entrypoint.sh").read_bytes()
    yield file_entry(ENTRYPOINT, entrypoint, 0o755)
    yield file_entry(CNI_TEMPLATE.lstrip("/"), CNI.encode())
    yield file_entry("kind/version", kubernetes.encode())
    yield file_entry("etc/systemd/journald.conf.d/kind.conf", b"[Journal]\nReadKMsg=no\n")
    for name, value in node_root.SYSCTLS.items():
        yield file_entry(f"{CONFIGURATION.lstrip('/')}/sysctl/{name}", f"{value}\n".encode())
    for name in ("etc/kubernetes/manifests", "kind/manifests"):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        yield entry, None


CNI = """\
{
 "cniVersion": "1.0.0",
 "name": "pods",
 "plugins": [
  {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "{{.PodCIDR}}"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
 ]
}
"""
"""Template of the CNI configuration, which containerd fills in; kind_cluster.py sets the routes to pods of other nodes."""


def links(targets: Mapping[str, str]) -> Iterator[Entry]:
    """Entries of symbolic links, from their targets by path."""
    for name, target in targets.items():
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
        yield entry, None


# --- the system image ----------------------------------------------------------------------------------------------------


def _write_system(images: KindImages, folder: Path, target: Path) -> None:
    first, *others = system_names(images.kind / "kubeadm")
    programs = {
        "coredns": images.node / "coredns",
        "usr/local/bin/controlplane": images.control_plane,
        "usr/local/bin/kube-proxy": images.node / "node",
    }
    own = [
        *(file_entry(name, path.read_bytes(), 0o755) for name, path in programs.items()),
        *links({f"usr/local/bin/{name}": "controlplane" for name in CONTROL_PLANE}),
        *links(iptables_links(images.iptables)),
    ]
    config = {"Entrypoint": ["/coredns"], "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin"]}
    image_base.write_archive(_layer(folder, own, SYSTEM_PACKAGES), target, first, config, other_names=others)


def iptables_links(backend: str) -> dict[str, str]:
    """Symbolic links of iptables: the programs of this backend by the names that kube-proxy calls."""
    programs = [f"{name}{suffix}" for name in ("iptables", "ip6tables") for suffix in ("", "-restore", "-save")]
    return {f"usr/sbin/{name}": "-".join((*name.split("-")[:1], backend, *name.split("-")[1:])) for name in programs}
