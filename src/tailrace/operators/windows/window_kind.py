"""What all kinds of windows have in common. Each kind is a frozen dataclass in a file of its own."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, TypeVar

from tailrace.types import DataType, window_of

_Self = TypeVar("_Self", bound="WindowBase")


class WindowKind(StrEnum):
    """As users and progress reports name them."""

    GLOBAL = "global"
    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSION = "session"
    COUNT = "count"
    CUSTOM = "custom"


class WindowBase:
    kind: ClassVar[str]
    """Kept in checkpoints: it says which class a window is read as."""

    by_key: ClassVar[bool] = False
    """Whether each key has windows of its own, so that a user's function must see which row is in which."""

    @property
    def window_kind(self) -> WindowKind:
        return WindowKind(self.kind)

    def output_type(self, time: DataType | None) -> DataType:
        """Of the output column: a window's bounds."""
        assert time is not None, "a window without event time"
        return window_of(time)

    def text(self) -> str:
        """In a user's words. Different windows must read differently: a changed query is found out by these."""
        raise NotImplementedError

    def lines(self, column: str, time: str | None) -> list[str]:
        """For ``explain``. ``column``: of the output; ``time``: the event time."""
        return [f"window {self.text()}, over {time}, in column {column}"]

    def without_code(self: _Self) -> _Self:
        """The same without the user's functions."""
        return self

    def for_tasks(self: _Self) -> _Self:
        """The same with those of the user's functions that tasks call."""
        return self
