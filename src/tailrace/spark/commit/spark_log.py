"""Spark's own logs of a query, wherever its checkpoint lies: in a local path, or behind a Hadoop URI, read by Spark.

Behind a URI, Spark reads the logs, and Tailrace's own store moves files to a backup. The two find the place by
different settings (Hadoop's confs, environment variables), and might look at two buckets, or clusters, of one name. So
before the store is trusted with that, it puts an object that Spark must see.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import AnalysisException

from tailrace.commit.spark_logs.log_files import BACKUP, SparkLogFolder, SparkLogObjects, SparkLogPlace, numbers_of
from tailrace.env.files.disk import Disk
from tailrace.env.randomness import short_id
from tailrace.env.stores.location import CLOUD_SCHEMES, HDFS_SCHEMES, open_store
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError
from tailrace.spark.private import JAVA_ERROR

_LOOK_S = 10.0
"""How long a start looks for a name node's web interface: a cluster may have none, and then commits in mode sync."""


class SparkLogFiles:
    """The logs below a checkpoint location. One thread at a time."""

    def __init__(self, spark: SparkSession, checkpoint: str, disk: Disk | None = None) -> None:
        self._spark = spark
        self._checkpoint = checkpoint.rstrip("/") if not is_local(checkpoint) else checkpoint
        self._folder = SparkLogFolder(Path(open_store(checkpoint).uri), disk) if is_local(checkpoint) else None

    @cached_property
    def files(self) -> SparkLogPlace | None:
        """Where Tailrace can write to them, and records them with the state."""
        if self._folder is not None:
            return self._folder
        return None if self.fixed else SparkLogObjects(open_store(self._checkpoint))

    @cached_property
    def fixed(self) -> tuple[str, ...]:
        """Why the logs cannot be rewound, where they cannot."""
        if self._folder is not None:
            return ()
        scheme = self._checkpoint.partition(":")[0].lower()
        if scheme not in (*CLOUD_SCHEMES, *HDFS_SCHEMES):
            return (f"Spark's checkpoint {self._checkpoint} is on {scheme}:, where Tailrace cannot rewind it",)
        options = {"retry_s": str(_LOOK_S)} if scheme in HDFS_SCHEMES else {}
        try:
            store = open_store(self._checkpoint, options)
            if self._is_same_place(store):
                return ()
        except CheckpointError as error:
            return (f"Spark's checkpoint {self._checkpoint} cannot be rewound ({str(error).split('. ')[0]})",)
        return (
            f"Spark's checkpoint {self._checkpoint} cannot be rewound, since Spark does not see what is put to "
            f"{store.uri}: the settings of Hadoop's file system and the environment variables lead to different places",
        )

    def epochs(self, log: str) -> list[int]:
        """The epochs that have a file in ``commits`` or ``offsets``; empty where there is no checkpoint yet."""
        if self.files is not None:
            return self.files.epochs(log)
        try:
            found = self._spark.read.format("binaryFile").load(f"{self._checkpoint}/{log}")
            return numbers_of(row.path for row in found.select("path").collect())
        except AnalysisException:  # no such path: the query has not run yet
            return []

    def move_to_backup(self, path: str) -> None:
        if self.files is None:
            raise CheckpointError(
                f"Spark's checkpoint {self._checkpoint} is one epoch ahead of the state, and {path} must be moved out "
                f"of it before the query can go on. But {self.fixed[0]}. Move {path} away by hand, or start with new "
                "locations."
            )
        self.files.move_to_backup(path)

    def _is_same_place(self, store: ObjectStore) -> bool:
        name = f"{BACKUP}/place-{short_id()}"
        store.put(name, [name.encode()])
        try:
            found = self._spark.read.format("binaryFile").load(f"{self._checkpoint}/{name}")
            return [bytes(row.content) for row in found.select("content").collect()] == [name.encode()]
        except (PySparkException, JAVA_ERROR):  # the object is not there, or Spark has no such file system
            return False
        finally:
            store.delete([name])


def is_local(uri: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", uri) is None or uri.lower().startswith("file:")
