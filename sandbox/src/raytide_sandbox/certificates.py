"""X.509 certificates for the sandbox's servers and clients.

Takes the time, names and addresses; returns certificates with their keys as PEM, signed by a CA made for one sandbox.
Keys are P-256, so each takes about a millisecond. `make_certificates` returns one server certificate and discards the
CA key, so nothing else can be signed with it. Called once per `sandbox up`.
"""

import os
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, Self, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = timedelta(days=365)
CLOCK_SKEW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM texts: what clients need (`authority`) and what the server needs (`server`, `server_key`)."""

    authority: bytes
    server: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the certificate and key into `context`; OpenSSL reads the key from an unlinked temporary file."""
        with tempfile.TemporaryFile() as file:
            file.write(self.certificate + self.key)
            file.flush()
            context.load_cert_chain(f"/proc/{os.getpid()}/fd/{file.fileno()}")


class Authority:
    """A certificate authority (CA); keep it only as long as certificates have to be issued."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, now: datetime, name: str = "raytide-sandbox-ca") -> Self:
        """Create a CA with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        certificate = (
            _builder(subject, subject, key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Load an existing CA from PEM."""
        loaded = serialization.load_pem_private_key(key, password=None)
        return cls(x509.load_pem_x509_certificate(certificate), cast("ec.EllipticCurvePrivateKey", loaded))

    @property
    def certificate(self) -> bytes:
        """The CA certificate that clients and servers have to trust, as PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """The CA's private key, as PEM."""
        return _key_pem(self._key)

    def issue_server(self, now: datetime, common_name: str, hosts: Iterable[str]) -> Identity:
        """Issue a certificate for a server with the names `hosts` (DNS names and IP addresses alike)."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._issue(now, _name(common_name), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def issue_client(self, now: datetime, user: str, group: str = "") -> Identity:
        """Issue a client certificate that an API server authenticates as `user` in `group`."""
        return self._issue(now, _name(user, group), ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self,
        now: datetime,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None = None,
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._certificate.subject, key.public_key(), now)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return Identity(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def make_certificates(now: datetime, hosts: Iterable[str]) -> Certificates:
    """Create a CA and one server certificate for `hosts` (DNS names and IP addresses alike)."""
    authority = Authority.create(now)
    server = authority.issue_server(now, "kube-apiserver", hosts)
    return Certificates(authority.certificate, server.certificate, server.key)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(common_name: str, organization: str = "") -> x509.Name:
    group = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*group, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
