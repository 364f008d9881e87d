"""Order in which to request the host keys of a host that has several."""

from __future__ import annotations

from remote.ssh.known_hosts import Known

# The defaults of OpenSSH's client, in its order, without hardware keys (ssh_config(5), HostKeyAlgorithms).
_PREFERRED = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)


def host_key_algorithms(known: Known) -> list[str]:
    """Return all algorithms, in order of preference: certificates that may be valid, known keys, then the rest."""
    kinds = {entry.key.get_algorithm() for entry in known.keys}
    plain = sorted(_PREFERRED, key=lambda algorithm: _kind(algorithm) not in kinds)
    certificates = [f"{algorithm}-cert-v01@openssh.com" for algorithm in _PREFERRED if known.authorities]
    return certificates + plain


def _kind(algorithm: str) -> str:
    return "ssh-rsa" if algorithm.startswith("rsa-") else algorithm
