"""Java libraries that tests and benches need and Spark does not carry, fetched once from Maven's artifacts.

The program that fetches them is Ivy, which is among Spark's own jars: nothing but Python and Java is needed, and Ivy
knows by itself where the artifacts are. They are kept below the virtual environment, one folder a set.

Any number of processes may ask for a set at once. It is there whole or not at all, since its folder gets its name
last; where two fetch it, the first to be done wins.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from tailrace.errors import TailraceError

FETCH_TIMEOUT_S = 600
_KEPT = Path(sys.prefix) / "maven"


@dataclass(frozen=True)
class Artifact:
    """``version``: one, or a range as ``[4.0.0,4.3.0]``, of which the newest is taken. ``alone``: not what it needs."""

    group: str
    name: str
    version: str
    alone: bool = False

    def to_xml(self) -> str:
        given = {"org": self.group, "name": self.name, "rev": self.version}
        said = " ".join(f"{name}={quoteattr(value)}" for name, value in given.items())
        return f'<dependency {said} transitive="{"false" if self.alone else "true"}"/>'


def up_to_spark(group: str, name: str) -> Artifact:
    """One of Spark's own artifacts, by itself: the newest up to the version of this Spark."""
    return Artifact(group, name, f"[4.0.0,{pyspark.__version__}]", alone=True)


def fetched(name: str, artifacts: Sequence[Artifact]) -> list[Path]:
    """The jars of a set of artifacts. ``name`` says what they are for, in messages and as part of the folder's name."""
    described = "\n".join(artifact.to_xml() for artifact in artifacts)
    folder = _KEPT / f"{name}-{hashlib.sha256(described.encode()).hexdigest()[:8]}"
    if not folder.is_dir():
        _KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_KEPT, ignore_cleanup_errors=True) as work:
            backup = _fetch(name, described, Path(work))
            try:
                backup.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return sorted(folder.glob("*.jar"))


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _fetch(name: str, described: str, work: Path) -> Path:
    wanted, backup = work / "wanted.xml", work / "jars"
    wanted.write_text(
        '<ivy-module version="2.0"><info organisation="tailrace" module="wanted"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>\n{described}\n</dependencies></ivy-module>"
    )
    jars = Path(pyspark.__file__).parent / "jars"
    ivy = next(jars.glob("ivy-*.jar"), None)
    if ivy is None:
        raise TailraceError(f"There is no Ivy among Spark's jars in {jars}: install pyspark from PyPI.")
    command = [java(), "-cp", str(ivy), "org.apache.ivy.Main", "-cache", str(work / "cache"), "-ivy", str(wanted)]
    command += ["-types", "jar", "bundle", "-retrieve", f"{backup}/[artifact]-[revision].[ext]"]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TailraceError(f"The Java libraries of {name} could not be fetched: {error}.") from error
    if ended.returncode or not any(backup.glob("*.jar")):
        said = "\n".join([*ended.stdout.splitlines(), *ended.stderr.splitlines()][-25:])
        raise TailraceError(f"The Java libraries of {name} could not be fetched; the last that Ivy said:\n{said}")
    return backup
