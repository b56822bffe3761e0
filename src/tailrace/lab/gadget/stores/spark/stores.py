"""Spark's two state stores, used as Spark uses them but without a query: a provider, one version, gets, puts, removes.

A call from Python to the JVM takes tens of microseconds, so a micro-batch is one: its accesses lie in a file, a small
class in the JVM goes through them in order and writes the answers to another file. The class is Java text, compiled by
Janino, with which Spark compiles its own queries. A scalar call is a micro-batch of one access: what it takes is mostly
the way to the JVM.

Neither store appends where a key has one value, so a merge reads, appends and puts. Nothing is committed: other stores
do not have to survive a crash either. One JVM serves all stores of the process and ends with it.

Threads: one at a time.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tailrace.errors import TailraceError
from tailrace.lab.gadget.stores.contract import (
    Batch,
    Settings,
    Store,
    StoreUnavailableError,
    Values,
    package,
    words_of,
)
from tailrace.lab.gadget.stores.spark import kernels as sk
from tailrace.lab.spark_private import hadoop_configuration, jvm_of, object_array, session_conf

_STATE = "org.apache.spark.sql.execution.streaming.state"
_RUN = "00000000-0000-0000-0000-000000000000"
_PLAYER = """
import java.nio.*;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.execution.streaming.state.StateStore;

public class Player {
  private final StateStore store;
  private final UnsafeRowWriter keys = new UnsafeRowWriter(1, 64);
  private final UnsafeRowWriter values = new UnsafeRowWriter(1, 1024);
  private ByteBuffer out = ByteBuffer.allocate(1 << 16);

  public Player(Object store) { this.store = (StateStore) store; }

  private UnsafeRow row(UnsafeRowWriter writer, byte[] bytes) {
    writer.reset();
    writer.zeroOutNullBytes();
    writer.write(0, bytes);
    return writer.getRow();
  }

  private void answer(byte[] bytes) {
    int size = bytes == null ? 0 : bytes.length;
    if (out.remaining() < size + 4) {
      ByteBuffer larger = ByteBuffer.allocate(2 * (out.position() + size + 4)).order(ByteOrder.LITTLE_ENDIAN);
      out.flip();
      larger.put(out);
      out = larger;
    }
    out.putInt(bytes == null ? -1 : size);
    if (bytes != null) out.put(bytes);
  }

  public void run(String from, String to) throws Exception {
    ByteBuffer in = ByteBuffer.wrap(Files.readAllBytes(Paths.get(from))).order(ByteOrder.LITTLE_ENDIAN);
    out.clear();
    out.order(ByteOrder.LITTLE_ENDIAN);
    while (in.hasRemaining()) {
      int operation = in.get();
      byte[] name = new byte[in.getInt()];
      in.get(name);
      byte[] value = new byte[in.getInt()];
      in.get(value);
      UnsafeRow key = row(keys, name);
      if (operation == 0) {
        UnsafeRow held = store.get(key, "default");
        answer(held == null ? null : held.getBinary(0));
      } else if (operation == 1) {
        store.put(key, row(values, value), "default");
      } else if (operation == 2) {
        UnsafeRow held = store.get(key, "default");
        if (held != null) {
          byte[] before = held.getBinary(0);
          byte[] whole = java.util.Arrays.copyOf(before, before.length + value.length);
          System.arraycopy(value, 0, whole, before.length, value.length);
          value = whole;
        }
        store.put(key, row(values, value), "default");
      } else {
        store.remove(key, "default");
      }
    }
    out.flip();
    FileChannel file = FileChannel.open(Paths.get(to), new OpenOption[] {
      StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING});
    try {
      while (out.hasRemaining()) file.write(out);
    } finally {
      file.close();
    }
  }
}
"""


@cache
def _spark() -> Any:
    """The session of this process."""
    sessions = package("tailrace.lab.engines.session", "`pip install pyspark`")
    folder = Path(tempfile.mkdtemp(prefix="tailrace-gadget-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        spark = sessions.start_session("gadget", work=folder, log=folder / "log.txt")
    except TailraceError as error:
        raise StoreUnavailableError(str(error)) from error
    atexit.register(spark.stop)
    return spark


@cache
def _player_class() -> Any:
    jvm = jvm_of(_spark())
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_PLAYER)
    return compiler.getClassLoader().loadClass("Player").getConstructors()[0]


class _SparkStore(Store):
    batch_note: ClassVar[str] = "in order, in one call to the JVM"
    _provider_class: ClassVar[str]

    def __init__(self, settings: Settings) -> None:
        spark = _spark()
        player = _player_class()
        jvm = jvm_of(spark)
        self._memory_bytes = settings.memory_bytes
        self._requests, self._answers = settings.folder / "requests", settings.folder / "answers"
        for name, value in self._confs().items():
            spark.conf.set(name, value)
        hadoop = hadoop_configuration(spark)
        hadoop.set("sql.streaming.runId", _RUN)  # a store asks for the query that it is of
        schema = jvm.org.apache.spark.sql.types.StructType.fromDDL("bytes BINARY")
        state = getattr(jvm, _STATE)
        self._provider = state.StateStoreProvider.create(f"{_STATE}.{self._provider_class}")
        self._provider.init(
            state.StateStoreId(str(settings.folder / "checkpoint"), 0, 0, "default"),
            schema,
            schema,
            state.NoPrefixKeyStateEncoderSpec(schema),
            False,
            state.StateStoreConf.apply(session_conf(spark)),
            hadoop,
            False,
            jvm.scala.Option.empty(),
        )
        self._store = self._provider.getStore(0, jvm.scala.Option.empty(), False, False)
        self._player = player.newInstance(object_array(spark, self._store))

    def _confs(self) -> dict[str, str]:
        return {}

    def run(self, batch: Batch) -> Values:
        keys = batch.keys.tolist()
        names = [batch.names[key] for key in keys]
        self._requests.write_bytes(sk.requests(batch, names))
        self._player.run(str(self._requests), str(self._answers))
        return sk.answers(self._answers.read_bytes(), int((batch.operations == 0).sum()))

    def _one(self, operation: int, key: bytes, value: bytes = b"") -> Values:
        data = np.frombuffer(value, np.uint8)
        size, zero = np.array([len(value)]), np.zeros(1, np.int64)
        return self.run(Batch(np.array([operation], np.uint8), zero, size, zero, data, [key], [value], words_of([key])))

    def get(self, key: bytes) -> bytes | None:
        found = self._one(0, key)
        return None if found.sizes[0] < 0 else found.data.tobytes()

    def put(self, key: bytes, value: bytes) -> None:
        self._one(1, key, value)

    def merge(self, key: bytes, value: bytes) -> None:
        self._one(2, key, value)

    def delete(self, key: bytes) -> None:
        self._one(3, key)

    def close(self) -> None:
        self._store.abort()
        self._provider.close()


class SparkMemoryStore(_SparkStore):
    """Maps of rows in the JVM, each version with a file of its changes."""

    name: ClassVar[str] = "spark-memory"
    _provider_class: ClassVar[str] = "HDFSBackedStateStoreProvider"

    @property
    def memory(self) -> dict[str, int]:
        return {}


class SparkRocksStore(_SparkStore):
    name: ClassVar[str] = "spark-rocksdb"
    _provider_class: ClassVar[str] = "RocksDBStateStoreProvider"

    @property
    def memory(self) -> dict[str, int]:
        return {"memtables": self._memory_bytes // 4 * 3, "block cache": self._memory_bytes // 4}

    def _confs(self) -> dict[str, str]:
        prefix = "spark.sql.streaming.stateStore.rocksdb."
        megabytes = self._memory_bytes >> 20
        return {
            f"{prefix}blockCacheSizeMB": str(max(1, megabytes // 4)),
            f"{prefix}writeBufferSizeMB": str(max(1, megabytes * 3 // 8)),
            f"{prefix}maxWriteBufferNumber": "2",
            f"{prefix}changelogCheckpointing.enabled": "true",
        }
