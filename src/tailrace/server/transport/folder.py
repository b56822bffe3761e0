"""Where one server keeps its files: names shared by the process and by those who start it.

``<temporary>/tailrace-<uid>/<run>-<executor pid>-<executor start>/`` with the files below. The name says whose it is:
pids are reused, a pid with its start time is not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tailrace.env.files import scratch

NAME_CHARS_MAX = 60
"""Bound of ``/<run>-<pid>-<start>/<socket>``, for choosing a base short enough for a socket's path."""


@dataclass(frozen=True)
class ProcessFolder:
    """What every process has in its folder that others start and look for."""

    path: str

    @property
    def launch_lock(self) -> str:
        """Held by whoever is starting the process."""
        return os.path.join(self.path, "launch")

    @property
    def alive_lock(self) -> str:
        """Held by the process for its whole life."""
        return os.path.join(self.path, "alive")

    @property
    def log(self) -> str:
        return os.path.join(self.path, "log")

    def remove_if_dead(self, timeout_s: float = 0.0) -> bool:
        """Whether the folder's process is dead, and the folder therefore removed.

        Its locks show that, in other containers too.
        """
        try:
            launch = scratch.ProcessLock.take(self.launch_lock, timeout_s)
            if launch is None:
                return False
            with launch:
                alive = scratch.ProcessLock.take(self.alive_lock, timeout_s)
                if alive is None:
                    return False
                with alive:
                    scratch.remove_tree(self.path)
        except FileNotFoundError:
            return False  # it was removed at this moment, or is a folder of another machine
        return True


@dataclass(frozen=True)
class ServerFolder(ProcessFolder):
    @classmethod
    def of(cls, base: str, run: str, executor_pid: int, executor_started: str) -> ServerFolder:
        return cls(os.path.join(base, f"{run}-{executor_pid}-{executor_started}"))

    @property
    def owner(self) -> tuple[int, str] | None:
        """The executor's pid and start time; None where this is no server's folder."""
        parts = os.path.basename(self.path).split("-")
        return (int(parts[1]), parts[2]) if len(parts) == 3 and parts[1].isdigit() else None

    @property
    def address(self) -> str:
        """Written by the server once it listens."""
        return os.path.join(self.path, "address.json")

    def socket(self, server: str) -> str:
        """A path that no other server had: after failed calls gRPC lets an address rest, whoever listens there now."""
        return os.path.join(self.path, f"s{server}")

    def local_rpc(self, server: str) -> str:
        """The socket without gRPC, beside the other one."""
        return os.path.join(self.path, f"d{server}")


def sweep(base: str) -> list[str]:
    """Remove the folders of dead servers. Returns what was removed."""
    folders = (ServerFolder(os.path.join(base, name)) for name in scratch.folders(base))
    return [folder.path for folder in folders if folder.owner is not None and folder.remove_if_dead()]
