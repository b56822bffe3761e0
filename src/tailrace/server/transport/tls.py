"""How calls between machines are encrypted: what a server shows, and whom its callers trust.

Invariants
- Plain data, PEM as text. Secrets are in no ``repr``.
- A server either was sent its key pair with its configuration, or reads it from files of its own machine. In the first
  case all servers of a run show one certificate, whatever their hosts are called: callers check ``Trust.name`` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Trust:
    """``roots``: certificates of authorities; None: those of the machine. ``name``: whose the certificate has to be."""

    roots: str | None = None
    name: str | None = None  # None: the host's that is called

    def client_options(self) -> dict[str, Any]:
        """The arguments of a Flight client."""
        given = {"tls_root_certs": self.roots, "override_hostname": self.name}
        return {name: value for name, value in given.items() if value is not None}


MACHINES_TRUST = Trust()
"""The authorities that the machine trusts, and hosts by their names."""


@dataclass(frozen=True)
class Tls:
    """A key pair as text, or the names of its files on the executors."""

    trust: Trust
    chain: str | None = None
    key: str | None = field(default=None, repr=False)
    chain_path: str | None = None
    key_path: str | None = None

    def certificates(self, read: Callable[[str], bytes]) -> list[tuple[bytes, bytes]]:
        """The argument of a Flight server. ``read`` gives a file's content."""
        if self.chain is not None and self.key is not None:
            return [(self.chain.encode(), self.key.encode())]
        assert self.chain_path is not None and self.key_path is not None
        return [(read(self.chain_path), read(self.key_path))]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Tls:
        return cls(**{**raw, "trust": Trust(**raw["trust"])})
