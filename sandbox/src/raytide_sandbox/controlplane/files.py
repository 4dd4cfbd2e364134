"""Control-plane files: keys, certificates and settings in its directory.

Input: the directory and the names of its API server. Writes what is missing, mode 0600, and keeps what a restart needs:
the authorities, the key that signs service-account tokens, and the administrator's token. Certificates for servers and
components are issued anew at each start. There are three authorities, so that a client of the API cannot thereby access
etcd or impersonate another user. Used by processes.py and flags.py.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from raytide_sandbox.certificates import Authority, Identity
from raytide_sandbox.kubeconfig import build_kubeconfig, write_private

ADMIN: Final = "raytide-admin"
ADMINISTRATORS: Final = "system:masters"
CONTROLLERS: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
AUDIT_POLICY: Final[Mapping[str, Any]] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [
                {"group": "", "resources": ["pods"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
                {"group": "ray.io", "resources": ["rayclusters"]},
            ],
        },
        {"level": "Metadata"},
    ],
}
"""Logs every request on an object with its user, verb, object and response code; writes of pods, leases and RayClusters
in full."""


def utc_now() -> datetime:
    """The start of certificates' validity."""
    return datetime.now(UTC)  # noqa: TID251 - certificates are for the real world's clock


class PlaneFiles:
    """Everything in the directory except etcd's own files and the logs; `prepare` writes it."""

    def __init__(self, directory: Path, now: Callable[[], datetime]) -> None:
        self.directory = directory
        self._files = directory / "files"
        self._now = now
        self._authority: Authority | None = None

    @property
    def logs(self) -> Path:
        """The folder of the components' logs."""
        return self.directory / "logs"

    @property
    def etcd(self) -> Path:
        """The folder of etcd's own files: all objects of the cluster."""
        return self.directory / "etcd"

    @property
    def audit_log(self) -> Path:
        """One JSON object per line, for every request."""
        return self.logs / "audit.log"

    def file(self, name: str) -> Path:
        """Path of a key, a certificate, a kubeconfig or a setting, by its name."""
        return self._files / name

    def kubeconfig(self, user: str) -> Path:
        """Path of the kubeconfig of a component or the administrator."""
        return self.directory / "kubeconfig" if user == ADMIN else self.file(f"{user}.kubeconfig")

    @property
    def authority(self) -> Authority:
        """The authority that signs the API server's and its clients' certificates."""
        if self._authority is None:
            self._authority = self._load_or_create_authority("cluster")
        return self._authority

    @property
    def admin_token(self) -> str:
        """The administrator's token, the same at every start."""
        return self._kept("admin.token", lambda: secrets.token_urlsafe(24))

    def prepare(self, hosts: Iterable[str]) -> None:
        """Write everything that does not depend on ports."""
        for folder in (self.directory, self._files, self.logs, self.etcd):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
        now = self._now()
        self._identity("apiserver", self.authority.issue_server(now, "kube-apiserver", hosts))
        self._identity("components", self.authority.issue_server(now, "raytide-components", ["127.0.0.1", "localhost"]))
        kubelet_client = self.authority.issue_client(now, "kube-apiserver-kubelet-client", ADMINISTRATORS)
        self._identity("kubelet-client", kubelet_client)
        front_proxy = self._load_or_create_authority("front-proxy")
        self._identity("front-proxy-client", front_proxy.issue_client(now, "front-proxy-client"))
        storage = self._load_or_create_authority("storage")
        self._identity("storage", storage.issue_server(now, "etcd", ["127.0.0.1"]))
        self._identity("storage-client", storage.issue_client(now, "kube-apiserver-etcd-client"))
        self._write_account_keys()
        self._write("tokens.csv", f'{self.admin_token},{ADMIN},{ADMIN},"{ADMINISTRATORS}"\n')
        self._write("audit-policy.yaml", yaml.safe_dump(dict(AUDIT_POLICY)))

    def write_kubeconfigs(self, server: str) -> None:
        """Write kubeconfigs for the administrator and the components, each with its own certificate."""
        users = {ADMIN: ADMINISTRATORS, CONTROLLERS: "", SCHEDULER: ""}
        for user, group in users.items():
            name = user if user == ADMIN else f"system:{user}"
            identity = self.authority.issue_client(self._now(), name, group)
            text = build_kubeconfig(server=server, authority=self.authority.certificate, identity=identity)
            write_private(self.kubeconfig(user), text)
        scheduler = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig(SCHEDULER)), "qps": 500, "burst": 1000},
        }
        self._write("scheduler.yaml", yaml.safe_dump(scheduler))

    def issue_client(self, user: str, group: str) -> Identity:
        """A client certificate that the API server accepts as `user` of `group`."""
        return self.authority.issue_client(self._now(), user, group)

    def _write_account_keys(self) -> None:
        private = self._kept("accounts.key", _new_key).encode()
        public = serialization.load_pem_private_key(private, password=None).public_key()
        pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        self._write("accounts.pub", pem.decode())

    def _load_or_create_authority(self, name: str) -> Authority:
        certificate, key = self.file(f"{name}-ca.crt"), self.file(f"{name}-ca.key")
        if certificate.exists():
            return Authority.load(certificate.read_bytes(), key.read_bytes())
        made = Authority.create(self._now(), f"raytide-{name}-ca")
        self._write(key.name, made.key.decode())  # the certificate last: with it, the authority is complete
        self._write(certificate.name, made.certificate.decode())
        return made

    def _identity(self, name: str, identity: Identity) -> None:
        self._write(f"{name}.crt", identity.certificate.decode())
        self._write(f"{name}.key", identity.key.decode())

    def _kept(self, name: str, make: Callable[[], str]) -> str:
        path = self.file(name)
        if not path.exists():
            self._write(name, make())
        return path.read_text()

    def _write(self, name: str, text: str) -> None:
        write_private(self.file(name), text)


def _new_key() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode()
