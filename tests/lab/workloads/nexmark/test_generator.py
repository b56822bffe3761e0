"""The generator keeps the reference's rules: ids by arithmetic, shares by statistics; cuts of a range do not show."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.lab.nexmark_beam import smoke
from tailrace.errors import TailraceError
from tailrace.lab.workloads.nexmark.events import generator, schema
from tailrace.lab.workloads.nexmark.events.config import Config, RateShape
from tailrace.lab.workloads.nexmark.events.generator import auctions, bids, events, persons
from tailrace.lab.workloads.nexmark.events.schema import Kind
from tailrace.lab.workloads.nexmark.events.times import event_times_ms, located

CONFIG = Config(seed=5)

CONFIGS = st.builds(
    Config,
    seed=st.integers(0, 2**64 - 1),
    out_of_order_group_size=st.sampled_from([1, 2, 7, 100, 1000]),
    first_event_rate=st.sampled_from([1, 100, 10_000, 2_000_000]),
    next_event_rate=st.sampled_from([100, 10_000]),
    rate_shape=st.sampled_from(list(RateShape)),
    num_in_flight_auctions=st.sampled_from([1, 100, 5_000]),
    num_active_people=st.sampled_from([1, 1_000]),
    hot_auction_ratio=st.sampled_from([1, 2, 100]),
    avg_bid_byte_size=st.sampled_from([0, 32, 100, 300]),
)


def same(a: pa.Table, b: pa.Table) -> bool:
    return bool(a.combine_chunks().equals(b.combine_chunks()))


@given(CONFIGS, st.lists(st.integers(0, 400), min_size=1, max_size=5), st.integers(0, 10**9))
@settings(max_examples=30)
def test_any_cut_of_a_range_gives_the_same_rows(config: Config, lengths: list[int], start: int) -> None:
    edges = np.cumsum([start, *lengths]).tolist()
    for make in (persons, auctions, bids, events):
        complete = make(config, edges[0], edges[-1])
        backwards = [make(config, low, high) for low, high in reversed(list(pairwise(edges)))]
        assert same(complete, pa.concat_tables(reversed(backwards)))


def test_chunks_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = events(CONFIG, 0, 5_000)
    monkeypatch.setattr(generator, "CHUNK_EVENTS", 37)
    assert same(complete, events(CONFIG, 0, 5_000))


@given(CONFIGS, st.data())
@settings(max_examples=20)
def test_a_column_does_not_depend_on_the_others(config: Config, data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.sampled_from(schema.EVENT_SCHEMA.names), min_size=1, unique=True))
    assert same(events(config, 100, 300, columns), events(config, 100, 300).select(columns))


def test_seeds_differ() -> None:
    other = replace(CONFIG, seed=6)
    a, b = bids(CONFIG, 0, 10_000), bids(other, 0, 10_000)
    assert a["dateTime"].equals(b["dateTime"])
    for column in ("price", "extra", "channel"):
        assert pc.mean(pc.equal(a[column], b[column]).cast(pa.int8())).as_py() < 0.3


def test_the_wide_rows_are_the_three_kinds() -> None:
    wide = events(CONFIG, 1_000, 3_000)
    assert wide.schema.equals(schema.EVENT_SCHEMA)
    assert wide["number"].to_pylist() == list(range(1_000, 3_000))
    for kind, make in ((Kind.PERSON, persons), (Kind.AUCTION, auctions), (Kind.BID, bids)):
        table = make(CONFIG, 1_000, 3_000)
        assert table.schema.equals(schema.SCHEMAS[kind])
        mine = wide.filter(pc.equal(wide["event_type"], int(kind)))
        others = wide.filter(pc.not_equal(wide["event_type"], int(kind)))
        for name in table.column_names:
            assert mine[schema.wide_name(kind, name)].combine_chunks().equals(table[name].combine_chunks())
            assert table[name].null_count == 0
            if name != "dateTime":
                assert others[schema.wide_name(kind, name)].null_count == others.num_rows


def test_ids_of_the_first_events() -> None:
    wide = events(CONFIG, 0, 101)
    kinds = wide["event_type"].to_pylist()
    assert kinds == ([0, 1, 1, 1] + [2] * 46) * 2 + [0]
    people = [id for id in wide["person_id"].to_pylist() if id is not None]
    opened = [id for id in wide["auction_id"].to_pylist() if id is not None]
    assert people == [1000, 1001, 1002]
    assert opened == [1000, 1001, 1002, 1003, 1004, 1005]


def test_other_proportions_count_on() -> None:
    config = Config(person_proportion=2, auction_proportion=3, bid_proportion=5)
    assert persons(config, 0, 100)["id"].to_pylist() == list(range(1000, 1020))
    assert auctions(config, 0, 100)["id"].to_pylist() == list(range(1000, 1030))
    assert bids(config, 0, 100).num_rows == 50


def share(mask: np.ndarray) -> float:
    return float(mask.mean())


def test_hot_shares_and_cold_ranges() -> None:
    first, last = 1_000_000, 1_600_000
    numbers = np.arange(first, last)
    bid = numbers[numbers % 50 >= 4]
    table = bids(CONFIG, first, last, ["auction", "bidder", "price"])
    auction, bidder = table["auction"].to_numpy() - 1000, table["bidder"].to_numpy() - 1000
    last_auction, last_person = bid // 50 * 3 + 2, bid // 50
    hot = auction == last_auction // 100 * 100
    # A cold draw hits the hot one too, once in 111 (1010 for people): hence the bounds.
    assert 0.49 < share(hot) < 0.52
    assert auction[~hot].min() >= last_auction.min() - 100
    behind = last_auction[~hot] - auction[~hot]
    assert (behind.min(), behind.max()) == (-10, 100)
    assert 0.04 < share(auction > last_auction) < 0.05
    hot = bidder == last_person // 100 * 100 + 1
    assert 0.745 < share(hot) < 0.755
    behind = last_person[~hot] - bidder[~hot]
    assert (behind.min(), behind.max()) == (-10, 999)
    pairs = len(np.unique(auction * (1 << 32) + bidder)) / len(auction)
    assert 0.30 < pairs < 0.34

    opened = numbers[(numbers % 50 >= 1) & (numbers % 50 <= 3)]
    seller = auctions(CONFIG, first, last, ["seller"])["seller"].to_numpy() - 1000
    assert 0.74 < share(seller == opened // 50 // 100 * 100) < 0.76


def test_bids_per_auction_have_the_measured_shape() -> None:
    auction = bids(CONFIG, 0, 2_000_000, ["auction"])["auction"].to_numpy()
    counts = np.sort(np.bincount(auction - 1000)[:-20])
    assert np.median(counts) == pytest.approx(8, abs=1)
    assert share(counts > 600) == pytest.approx(0.01, abs=0.001), "one auction of a hundred is hot"
    assert counts.mean() == pytest.approx(46 / 3, rel=0.01)
    assert 800 < counts[-1] < 900


def test_ratio_one_is_never_hot() -> None:
    config = Config(hot_auction_ratio=1, hot_bidders_ratio=1, seed=2)
    table = bids(config, 1_000_000, 1_100_000, ["auction", "bidder"])
    bid = np.arange(1_000_000, 1_100_000)
    bid = bid[bid % 50 >= 4]
    assert share(table["auction"].to_numpy() - 1000 == (bid // 50 * 3 + 2) // 100 * 100) < 0.02


def test_prices_are_log_uniform() -> None:
    price = bids(CONFIG, 0, 500_000, ["price"])["price"].to_numpy()
    assert price.min() >= 100 and price.max() <= 100_000_000
    decades = np.histogram(np.log10(price), bins=6, range=(2, 8))[0] / len(price)
    assert decades == pytest.approx([1 / 6] * 6, abs=0.004)
    assert np.median(price) == pytest.approx(100_000, rel=0.05)
    assert price.mean() == pytest.approx(7.24e6, rel=0.02)
    in_q14 = (0.908 * price > 1_000_000) & (0.908 * price < 50_000_000)
    assert share(in_q14) == pytest.approx(0.283, abs=0.003)


def test_times_follow_the_rate() -> None:
    times = event_times_ms(CONFIG, np.arange(100))
    assert (times - CONFIG.base_time_ms).tolist() == [number // 10 for number in range(100)]
    assert pc.min(bids(CONFIG, 0, 50)["dateTime"]).as_py().isoformat() == "2015-07-15T00:00:00+00:00"


def test_the_rate_changes_by_steps() -> None:
    square = Config(first_event_rate=1_000, next_event_rate=500, rate_shape=RateShape.SQUARE, rate_period_sec=20)
    times = event_times_ms(square, np.arange(45_000)) - square.base_time_ms
    # Ten seconds of 1,000 a second, ten of 500, and again.
    assert (times[0], times[9_999], times[10_000], times[14_999], times[15_000]) == (0, 9_999, 10_000, 19_998, 20_000)
    assert times[30_000] == 40_000
    sine = replace(square, rate_shape=RateShape.SINE)
    steps = np.diff(event_times_ms(sine, np.arange(20_000)))
    assert (steps >= 0).all() and set(steps.tolist()) == {1, 2}


def test_out_of_order_groups_are_permutations() -> None:
    plain, mixed = Config(seed=1), Config(seed=1, out_of_order_group_size=1_000)
    a, b = bids(plain, 0, 4_000), bids(mixed, 0, 4_000)
    times = b["dateTime"].cast(pa.int64()).to_numpy()
    assert (np.diff(times) < 0).any()
    order = [(name, "ascending") for name in ("dateTime", "auction", "bidder", "price")]
    assert same(a.sort_by(order), b.sort_by(order))


def test_several_generators_share_ids_and_cover_the_same_time() -> None:
    config = smoke(events=100_000)
    number, ids = located(config, np.arange(100_000))
    assert np.array_equal(np.sort(ids), np.arange(100_000))
    times = event_times_ms(config, number) - config.base_time_ms
    assert np.array_equal(times, (ids % 1_000) * 10)
    assert (np.diff(times) >= 0).all(), "generators take turns"
    uneven = Config(events=1_003, num_event_generators=4)
    number, ids = located(uneven, np.arange(1_003))
    assert np.array_equal(np.sort(ids), np.arange(1_003))
    assert number.max() == 252


def test_auctions_expire_within_two_horizons() -> None:
    config = Config(seed=3, num_in_flight_auctions=1_000)
    table = auctions(config, 0, 500_000, ["dateTime", "expires"])
    life = table["expires"].cast(pa.int64()).to_numpy() - table["dateTime"].cast(pa.int64()).to_numpy()
    horizon = 16_666 / 10
    assert life.min() >= 1 and life.max() <= 2 * horizon + 2
    assert life.mean() == pytest.approx(horizon, rel=0.02)


def test_strings_keep_their_alphabets_and_lengths() -> None:
    people, opened, offered = (make(CONFIG, 0, 100_000) for make in (persons, auctions, bids))

    def matches(column: pa.ChunkedArray, pattern: str) -> bool:
        return bool(pc.all(pc.match_substring_regex(column, f"^(?:{pattern})$")).as_py())

    names, last = "|".join(generator.FIRST_NAMES), "|".join(generator.LAST_NAMES)
    assert matches(people["name"], f"({names}) ({last})")
    assert matches(people["emailAddress"], "[a-z ]{0,6}@[a-z ]{0,4}[.]com")
    assert matches(people["creditCard"], r"\d{4} \d{4} \d{4} \d{4}")
    assert set(people["city"].unique().to_pylist()) == set(generator.CITIES)
    assert set(people["state"].unique().to_pylist()) == set(generator.STATES)
    assert matches(opened["itemName"], "(?:[a-z][a-z ]{0,17}[a-z]|[a-z]?)")
    assert matches(opened["description"], "(?:[a-z][a-z ]{0,97}[a-z]|[a-z]?)")
    blanks = pc.sum(pc.count_substring(opened["description"], " ")).as_py()
    assert blanks / pc.sum(pc.utf8_length(opened["description"])).as_py() == pytest.approx(1 / 13, abs=0.01)
    assert sorted(opened["category"].unique().to_pylist()) == [10, 11, 12, 13, 14]
    lengths = pc.utf8_length(offered["extra"])
    assert pc.min_max(lengths).as_py() == {"min": 54, "max": 81}
    assert matches(offered["extra"], "[a-z]+")

    def mean_size(table: pa.Table, numbers: int) -> float:
        strings = [column for column in table.columns if pa.types.is_string(column.type)]
        return 8 * numbers + sum(pc.mean(pc.utf8_length(column)).as_py() for column in strings)

    assert mean_size(people, 1) == pytest.approx(200, rel=0.02)
    assert mean_size(opened, 6) == pytest.approx(500, rel=0.02)


def test_channels_and_their_urls() -> None:
    table = bids(CONFIG, 0, 200_000, ["channel", "url"])
    channel = table["channel"]
    hot = pc.is_in(channel, pa.array(["Google", "Facebook", "Baidu", "Apple"]))
    assert pc.mean(hot.cast(pa.int8())).as_py() == pytest.approx(0.5, abs=0.01)
    distinct = table.group_by(["channel", "url"]).aggregate([])
    assert distinct.num_rows == len(channel.unique()) <= 10_004, "a channel has one url"
    marked = pc.match_substring(table["url"], "&channel_id=")
    assert not pc.any(pc.and_(hot, marked)).as_py()
    assert pc.mean(pc.or_(hot, marked).cast(pa.int8())).as_py() == pytest.approx(0.95, abs=0.01)
    url = r"^https://www\.nexmark\.com/[a-z_]{3,4}/[a-z_]{3,4}/[a-z_]{3,4}/item\.htm\?query=1(&channel_id=\d+)?$"
    assert pc.all(pc.match_substring_regex(table["url"], url)).as_py()
    example = distinct.filter(pc.equal(distinct["channel"], "channel-8204"))["url"].to_pylist()
    assert all(text.endswith(str(int(f"{8204:032b}"[::-1], 2))) or "channel_id" not in text for text in example)


def test_skew_in_percent() -> None:
    """The suites' own ratios are percentages too: the same events. Others lie between them."""
    assert bids(replace(CONFIG, hot_auction_percent=50, hot_bidder_percent=75), 0, 20_000) == bids(CONFIG, 0, 20_000)
    for percent in (0, 25, 90, 100):
        config = replace(CONFIG, hot_auction_percent=percent, num_in_flight_auctions=10_000, hot_auction_batch=10_000)
        made = bids(config, 150_000, 160_000, ["auction"])["auction"]
        hot = pc.mean(pc.equal(made, 1_000).cast(pa.int8())).as_py()  # all are of the first batch
        assert hot == pytest.approx(percent / 100, abs=0.02)


def test_bids_may_be_made_to_come_after_their_auctions() -> None:
    for lead in (0, 10):
        made = events(replace(CONFIG, auction_id_lead=lead), 0, 50_000, ["number", "auction_id", "bid_auction"])
        opened = dict(zip(made["auction_id"].to_pylist(), made["number"].to_pylist(), strict=True))
        early = [
            auction
            for auction, number in zip(made["bid_auction"].to_pylist(), made["number"].to_pylist(), strict=True)
            if auction is not None and opened.get(auction, number + 1) > number
        ]
        assert bool(early) == (lead > 0)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"hot_auction_percent": 101}, "hot_auction_percent is 101"),
        ({"auction_id_lead": -1}, "auction_id_lead"),
        ({"num_event_generators": 2}, "events"),
        ({"first_event_rate": 3_000_000}, "rate"),
        ({"hot_auction_ratio": 0}, "hot_auction_ratio"),
        ({"out_of_order_group_size": 953}, "953"),
        ({"events": 1_000, "num_event_generators": 3, "out_of_order_group_size": 10}, "multiple"),
        ({"avg_bid_byte_size": -1}, "mean size"),
    ],
)
def test_a_wrong_configuration_is_refused(wrong: dict[str, int], word: str) -> None:
    with pytest.raises(TailraceError, match=word):
        Config(**wrong)  # type: ignore[arg-type]


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(TailraceError, match="no column wrong"):
        bids(CONFIG, 0, 10, ["wrong"])
    with pytest.raises(TailraceError, match="no range"):
        bids(CONFIG, 10, 0)
    with pytest.raises(TailraceError, match="has 100"):
        bids(Config(events=100), 0, 101)
