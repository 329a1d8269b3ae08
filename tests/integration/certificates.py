"""Certificates for a broker and its clients, made for one test run."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """Signs; `file` is what those who trust it are given."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    file: Path

    def issue(self, folder: Path, who: str) -> Path:
        """Key and certificate in one PEM file, for 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = _signed(_name(who), key, self.name, self.key, address)
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file = folder / f"{who}.pem"
        file.write_bytes(private + certificate)
        return file


def new_authority(folder: Path, who: str) -> Authority:
    key, name = ec.generate_private_key(ec.SECP256R1()), _name(who)
    file = folder / f"{who}.pem"
    file.write_bytes(_signed(name, key, name, key, x509.BasicConstraints(ca=True, path_length=0), critical=True))
    return Authority(name, key, file)


def _name(who: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, who)])


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
    critical: bool = False,
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(extension, critical=critical)
        .sign(issuer_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)
