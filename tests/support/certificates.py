"""Self-signed certificates, made by openssl; a test that needs them is skipped where there is none."""

import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(folder: Path, *names: str) -> Path:
    """A certificate NAME.pem with its key NAME.key for each of these names, valid for localhost too."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make certificates")
    for name in names:
        command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"), "-days", "3650"]
        command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    return folder


def with_passphrase(key: Path) -> Path:
    """A copy of a key that opens by a passphrase alone."""
    path = key.with_suffix(".locked")
    command = ["openssl", "pkey", "-in", str(key), "-aes256", "-passout", "pass:secret", "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return path
