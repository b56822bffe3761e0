"""The controller of hints in the driver: turns what epochs have shown into the next epoch's task instructions and plan.

After each epoch every operator's ``Lookahead`` goes one step. Its decision reaches tasks in a local property of the
next epoch's job (``tasks.hint_sender``). Where a point of the streaming plan is to send, a session setting makes Spark
keep that point's filter when it plans the next epoch (``points``). Where tasks are to send their rows in several
frames, another session setting makes Spark give tasks their rows in smaller batches.

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
from tailrace.spark.hints.framing import Cut, cut_of
from tailrace.spark.hints.lookahead import STAGING, Lookahead, LookaheadProgress, Rule, Sample, Seen
from tailrace.spark.hints.plan import HintPlan
from tailrace.spark.hints.points import RULES_CONF, point_conf
from tailrace.spark.tasks.hint_sender import HintInstruction, HintInstructions, hints_property
from tailrace.spark.tasks.ingest import FRAME_ROWS_MAX

_COUNTS = ("spilledHits", "spilledMisses", "spilledLate", "hintsFetched", "hintsWasted", "hintsPending")
_FETCH = "spilledFetchMsP99"
_BATCH_ROWS_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"
Routes = tuple[tuple[ServerAddress, int, int], ...]


class HintControl:
    def __init__(self, plan: PhysicalPlan, hints: HintPlan) -> None:
        tuning = plan.options.hints
        rule = Rule(margin_ms=tuning.margin / 1e3, waste_max=tuning.waste_max)
        self._points = frozenset(point.name for point in hints.points)
        self._lookaheads = {name: Lookahead(found, rule) for name, found in hints.candidates.items()}
        self._first = plan.stages[0].operator.name  # its rows come from tasks
        self.cut = Cut()
        self._batch_rows: str | None = None  # of Spark's batches for tasks, as the user has set it
        self._totals: dict[str, Mapping[str, float]] = {}
        self._results: dict[str, list[EpochResult]] = {}
        self._rules: str | None = None  # the optimizer rules that the user has excluded
        self._filtered = False
        self._instructed = False

    @property
    def lookaheads(self) -> Mapping[str, Lookahead]:
        return dict(self._lookaheads)

    def instruct(self, context: SparkContext, access: Access, epoch: int, try_: int, servers: Routes) -> None:
        """Set the instructions for this epoch's tasks, which may begin any time after this."""
        decided = ((name, each.decision) for name, each in self._lookaheads.items())
        instructions = tuple(
            HintInstruction(name, decision.candidate, decision.measured)
            for name, decision in decided
            if decision.candidate != STAGING or decision.measured
        )
        text = HintInstructions(epoch, try_, instructions, servers).to_json() if instructions else None
        if text is not None or self._instructed:
            context.setLocalProperty(hints_property(access.run), text)  # type: ignore[arg-type]  # None removes it
        self._instructed = text is not None

    def ran(self, operator: str, results: Sequence[EpochResult]) -> None:
        """An operator has worked on the epoch's rows on every server."""
        self._results[operator] = list(results)

    def after(
        self, statuses: Sequence[Sequence[OperatorStatus]], session: SparkSession, task_rows: int = 0
    ) -> list[LookaheadProgress]:
        """The epoch is over: decide, and set the plan of the next one.

        ``statuses``: by server, of its operators. ``task_rows``: of the epoch's largest task.
        """
        frames = self.cut.first
        progress = []
        for name, lookahead in self._lookaheads.items():
            results = self._results.pop(name, [])
            used = lookahead.decision.candidate
            known = lookahead.after(self._seen(name, results, [each for server in statuses for each in server]))
            self._lookaheads[name] = known
            hints, nbytes = sum(each.hints for each in results), sum(each.hint_bytes for each in results)
            own_frames = frames if name == self._first else None
            progress.append(LookaheadProgress(name, used, hints, nbytes, known, own_frames))
        self._set_plan(session)
        self._set_frames(session, task_rows)
        return progress

    def _seen(self, name: str, results: Sequence[EpochResult], statuses: Sequence[OperatorStatus]) -> Seen:
        own = [status for status in statuses if status.name == name]
        metrics = [status.metrics for status in own]
        totals = {count: sum(each.get(count, 0.0) for each in metrics) for count in _COUNTS}
        before = self._totals.get(name, {})
        self._totals[name] = totals
        # A server that was replaced counts from 0 again.
        more = {count: max(0, int(totals[count] - before.get(count, 0.0))) for count in _COUNTS}
        # Records that were fetched for this epoch's hints and are not used by now: evicted, or still in the cache.
        wasted = max(0, int(sum(totals[count] - before.get(count, 0.0) for count in ("hintsWasted", "hintsPending"))))
        slack: dict[str, list[Sample]] = {}
        for each in results:
            for point, samples in each.slack.items():
                slack.setdefault(point, []).extend(samples)
        return Seen(
            spilled=more["spilledHits"] + more["spilledMisses"],
            misses=more["spilledMisses"],
            late=more["spilledLate"],
            fetch_ms_p99=max((each.get(_FETCH, 0.0) for each in metrics), default=0.0),
            slack=slack,
            used=max(0, more["hintsFetched"] - wasted),
            wasted=wasted,
            wanted=any(status.wants_hints for status in own),
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
        wanted = cut_of(task_rows, self.cut) if self._lookaheads[self._first].on else Cut()
        if wanted == self.cut:
            return
        if self._batch_rows is None:
            self._batch_rows = str(session.conf.get(_BATCH_ROWS_CONF))
        given = int(self._batch_rows)  # 0 or less: all rows of a task in one batch
        as_given = wanted.rows == FRAME_ROWS_MAX or 0 < given <= wanted.rows
        session.conf.set(_BATCH_ROWS_CONF, self._batch_rows if as_given else str(wanted.rows))
        self.cut = wanted

    def _in_plan(self, lookahead: Lookahead) -> bool:
        """Whether a point of the plan is to send hints, or to report when rows pass."""
        decision = lookahead.decision
        return decision.candidate in self._points or (decision.measured and not self._points.isdisjoint(lookahead.kept))
