from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.api.duration import format_duration, parse_duration
from tailrace.errors import AnalysisError

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("10 seconds", 10 * SECOND),
        ("1 second", SECOND),
        ("1 minute 30 seconds", 90 * SECOND),
        ("500 milliseconds", SECOND // 2),
        ("7 microseconds", 7),
        ("2 hours", 7200 * SECOND),
        ("1 day", 86400 * SECOND),
        ("1 week", 7 * 86400 * SECOND),
        ("interval 5 seconds", 5 * SECOND),
        ("INTERVAL 5 Seconds", 5 * SECOND),
        ("  10   seconds  ", 10 * SECOND),
        ("1.5 seconds", 3 * SECOND // 2),
        (".5 seconds", SECOND // 2),
        ("1. seconds", SECOND),
        ("1.123456789 seconds", 1_123_456),
        ("1 minute -30 seconds", 30 * SECOND),
        ("+1 second", SECOND),
        ("1 second 1 second", 2 * SECOND),
    ],
)
def test_reads_what_spark_reads(text, micros):
    assert parse_duration(text, "it") == micros


@pytest.mark.parametrize(
    "text",
    ["", "   ", "interval", "10", "seconds", "10 sec", "10s", "10seconds", "1.5 minutes", "1 nanosecond", "ten seconds",
     "1 second and 2 seconds", "1.1234567891 seconds", "1e3 seconds", "--1 second", "٣ seconds", "1 seconds,"],
)  # fmt: skip
def test_unparsable_says_what_where_and_how(text):
    with pytest.raises(AnalysisError) as caught:
        parse_duration(text, "withWatermark: delayThreshold")
    assert f'"{text}"' in str(caught.value)
    assert "withWatermark: delayThreshold" in str(caught.value)
    assert '"10 seconds"' in str(caught.value)


@pytest.mark.parametrize("text", ["1 month", "2 months", "1 year", "1 day 1 month"])
def test_months_and_years_have_no_length(text):
    with pytest.raises(AnalysisError, match=r"fixed length.*days"):
        parse_duration(text, "it")


@pytest.mark.parametrize("given_", ["-1 seconds", "- 1 second", "1 second -2 seconds", timedelta(seconds=-1)])
def test_negative_is_refused_unless_it_makes_sense(given_):
    with pytest.raises(AnalysisError, match="negative"):
        parse_duration(given_, "it", zero_ok=True)
    assert parse_duration(given_, "it", negative_ok=True) == -SECOND


@pytest.mark.parametrize("given_", ["0 seconds", "0.0000001 seconds", timedelta(0)])
def test_zero_is_refused_unless_it_makes_sense(given_):
    with pytest.raises(AnalysisError, match="longer than zero"):
        parse_duration(given_, "it")
    assert parse_duration(given_, "it", zero_ok=True) == 0


@pytest.mark.parametrize("given_", [5, 1.5, None, True, b"1 second", ["1 second"]])
def test_other_types_are_refused(given_):
    with pytest.raises(AnalysisError, match="must be a duration"):
        parse_duration(given_, "it")


@pytest.mark.parametrize(
    "text", ["999999999999999999999 weeks", "9223372036854775808 microseconds", f"{'9' * 5000} days", timedelta.max]
)
def test_too_long_for_64_bits(text):
    with pytest.raises(AnalysisError, match="too long"):
        parse_duration(text, "it")


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_what_is_written_is_read_back(micros):
    assert parse_duration(format_duration(micros), "it", zero_ok=True, negative_ok=True) == micros


@given(st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=100_000_000)))
def test_timedeltas_are_exact(delta):
    assert timedelta(microseconds=parse_duration(delta, "it")) == delta


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        assert parse_duration(text, "it") > 0
    except AnalysisError as error:
        assert "it " in str(error)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(["week", "day", "hour", "minute", "second"])), min_size=1)
)
def test_terms_add_up(terms):
    complete = " ".join(f"{count} {unit}s" for count, unit in terms)
    parts = sum(parse_duration(f"{count} {unit}", "it", zero_ok=True) for count, unit in terms)
    assert parse_duration(complete, "it", zero_ok=True) == parts
