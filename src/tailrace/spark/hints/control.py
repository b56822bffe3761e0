"""The controller of hints in the driver: what epochs have shown, into decisions, into the next epoch's orders and plan.

After each epoch every operator's ``Lookahead`` goes one step. The decision reaches tasks in a local property of the
next epoch's job (``hint_sender``); and where a point of the streaming plan is wanted, Spark is told to leave its filter
in (``hint_points``), which it reads when it plans the next epoch. So too where tasks are to send their rows in smaller
frames, which servers see while the rest still comes: Spark is told to give tasks their rows in smaller batches.

Threads: the epoch's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.plan.physical import PhysicalPlan
from tailrace.server.transport.epoch_messages import EpochResult
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.server.transport.server_status import OperatorStatus
from tailrace.spark.hints.framing import Cut, Framing, FramingRule, cut_of
from tailrace.spark.hints.lookahead import STAGING, Lookahead, LookaheadProgress, Rule, Sample, Seen
from tailrace.spark.hints.plan import HintPlan
from tailrace.spark.hints.points import RULES_CONF, point_conf
from tailrace.spark.tasks.hint_sender import HintInstruction, HintInstructions, hints_property
from tailrace.spark.tasks.ingest import FRAME_ROWS_MAX

_COUNTS = ("spilledHits", "spilledMisses", "spilledLate", "hintsFetched", "hintsWasted", "hintsPending")
_WAIT, _FETCH = "spilledWaitMs", "spilledFetchMsP99"
_BATCH_ROWS_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"
Routes = tuple[tuple[ServerAddress, int, int], ...]


class HintControl:
    def __init__(self, plan: PhysicalPlan, hints: HintPlan) -> None:
        tuning = plan.options.hints
        rule = Rule(margin_ms=tuning.margin / 1e3, waste_max=tuning.waste_max)
        framing = Framing(FramingRule(worth_ms=tuning.worth / 1e3))
        self._points = frozenset(point.name for point in hints.points)
        first = plan.stages[0].operator.name
        self._lookaheads = {
            name: Lookahead(
                found,
                rule,
                framing=framing if name == first else None,
                in_plan=sum(point in self._points for point in found),
            )
            for name, found in hints.candidates.items()
        }
        self._first = first
        self.cut = Cut()
        self._batch_rows: str | None = None  # of Spark's batches for tasks, as the user has it
        self._totals: dict[str, Mapping[str, float]] = {}
        self._waits: dict[str, list[float]] = {}  # by operator, of each server
        self._arrived: dict[str, list[EpochResult]] = {}
        self._row_bytes: dict[str, int] = {}
        self._rules: str | None = None  # of Spark's optimizer that the user has left out
        self._filtered = False
        self._told = False

    @property
    def lookaheads(self) -> Mapping[str, Lookahead]:
        return dict(self._lookaheads)

    def instruct(self, context: SparkContext, access: Access, epoch: int, try_: int, servers: Routes) -> None:
        """Tell the tasks of this epoch what to do; they may begin any time after this."""
        decided = ((name, each.decision) for name, each in self._lookaheads.items())
        instructions = tuple(
            HintInstruction(name, decision.candidate, decision.measured)
            for name, decision in decided
            if decision.candidate != STAGING or decision.measured
        )
        told = HintInstructions(epoch, try_, instructions, servers).to_json() if instructions else None
        if told is not None or self._told:
            context.setLocalProperty(hints_property(access.run), told)  # type: ignore[arg-type]  # None: away with it
        self._told = told is not None

    def ran(self, operator: str, done: Sequence[EpochResult], row_bytes: int = 0) -> None:
        """An operator has worked on the epoch's rows, which took so many bytes, on every server."""
        self._arrived[operator] = list(done)
        self._row_bytes[operator] = row_bytes

    def after(
        self, statuses: Sequence[Sequence[OperatorStatus]], session: SparkSession, task_rows: int = 0
    ) -> list[LookaheadProgress]:
        """The epoch is over. ``statuses``: by server, of its operators. ``task_rows``: of its largest task.

        Decides, and sets the plan of the next one.
        """
        told = []
        for name, lookahead in self._lookaheads.items():
            done = self._arrived.pop(name, [])
            used = lookahead.decision.candidate
            known = lookahead.after(self._seen(name, done, [each for server in statuses for each in server]))
            self._lookaheads[name] = known
            hints, nbytes = sum(each.hints for each in done), sum(each.hint_bytes for each in done)
            told.append(LookaheadProgress(name, used, hints, nbytes, known))
        self._set_plan(session)
        self._set_frames(session, task_rows)
        return told

    def _seen(self, name: str, done: Sequence[EpochResult], statuses: Sequence[OperatorStatus]) -> Seen:
        told = [status for status in statuses if status.name == name]
        own = [status.metrics for status in told]
        totals = {count: sum(metrics.get(count, 0.0) for metrics in own) for count in _COUNTS}
        waits = [metrics.get(_WAIT, 0.0) for metrics in own]
        waited = self._waits.get(name, [])
        self._waits[name] = waits
        before = self._totals.get(name, {})
        self._totals[name] = totals
        # A server that was replaced has counted from 0 again.
        more = {count: max(0, int(totals[count] - before.get(count, 0.0))) for count in _COUNTS}
        # Entries that were foretold for this epoch and are not used by now: gone, or still there.
        wasted = max(0, int(sum(totals[count] - before.get(count, 0.0) for count in ("hintsWasted", "hintsPending"))))
        slack: dict[str, list[Sample]] = {}
        for each in done:
            for point, samples in each.slack.items():
                slack.setdefault(point, []).extend(samples)
        return Seen(
            spilled=more["spilledHits"] + more["spilledMisses"],
            misses=more["spilledMisses"],
            # Servers wait side by side. One that was replaced has counted from 0 again.
            wait_ms=max((max(0.0, now - then) for now, then in zip(waits, waited or [0.0] * len(waits))), default=0.0),
            late=more["spilledLate"],
            hint_bytes=sum(each.hint_bytes for each in done),
            row_bytes=self._row_bytes.pop(name, 0),
            fetch_ms_p99=max((metrics.get(_FETCH, 0.0) for metrics in own), default=0.0),
            slack=slack,
            used=max(0, more["hintsFetched"] - wasted),
            wasted=wasted,
            wanted=any(status.wants_hints for status in told),
        )

    def _set_plan(self, session: SparkSession) -> None:
        wanted = any(self._in_plan(each) for each in self._lookaheads.values())
        if wanted == self._filtered:
            return
        if self._rules is None:
            self._rules = str(session.conf.get(RULES_CONF, "") or "")
        session.conf.set(RULES_CONF, point_conf(self._rules, wanted))
        self._filtered = wanted

    def _set_frames(self, session: SparkSession, task_rows: int) -> None:
        framing = self._lookaheads[self._first].framing
        assert framing is not None
        wanted = cut_of(task_rows, framing.frames, self.cut)
        if wanted == self.cut:
            return
        if self._batch_rows is None:
            self._batch_rows = str(session.conf.get(_BATCH_ROWS_CONF))
        given = int(self._batch_rows)  # 0 or less: all rows of a task in one batch
        as_given = wanted.rows == FRAME_ROWS_MAX or 0 < given <= wanted.rows
        session.conf.set(_BATCH_ROWS_CONF, self._batch_rows if as_given else str(wanted.rows))
        self.cut = wanted

    def _in_plan(self, lookahead: Lookahead) -> bool:
        """Whether a point of the plan is to send hints, or to tell when rows pass."""
        decision = lookahead.decision
        return decision.candidate in self._points or (decision.measured and not self._points.isdisjoint(lookahead.kept))
