"""A query whose epochs write small objects, with Spark's checkpoint on a disk and without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from support.models.spark_checkpoint import SparkCheckpoint
from tailrace.commit.controller import Controller
from tailrace.commit.objects import write_object
from tailrace.commit.spark_logs.log_files import SparkLogFolder
from tailrace.env.stores.local_store import LocalStore

PLAN = {"q": 1}


class Query:
    """Epoch e has read file ``f<e>``, and wrote an object that the two epochs after it need."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spark = SparkCheckpoint(root)
        self.store = LocalStore(root / "tailrace")

    @property
    def place(self) -> SparkLogFolder:
        return SparkLogFolder(self.root)

    def run(self, epochs: int, plan: Mapping[str, object] = PLAN) -> int:
        """So many more; gives the first of them. The last is committed by Spark, too."""
        controller = Controller.start(self.store, plan, self.place)
        controller.trim_spark_logs()
        self.spark.start()
        first = controller.recovery_point.epoch + 1
        for epoch in range(first, first + epochs):
            self.spark.plan(epoch, f"f{epoch}")
            controller.record_spark_logs(epoch)
            section = pa.record_batch(
                {"__hash": pa.array([epoch], pa.int64()), "__pane": pa.array([epoch], pa.int64())}
            )
            delta = write_object(
                self.store,
                run=controller.run,
                try_=0,
                server=0,
                first_epoch=epoch,
                last_epoch=epoch,
                shards=[(0, 4)],
                sections={"op": {epoch % 4: section}},
                horizons={},
            )
            controller.commit(epoch, 0, [delta], rows={"input": epoch}, horizons={"op": epoch - 1})
            controller.clean()
            self.spark.commit(epoch)
        controller.close()
        return first

    def objects(self) -> list[str]:
        return [each.name for each in self.store.list("objects/")]
