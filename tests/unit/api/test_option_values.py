"""Options are declared once: what the parser takes and refuses, and how it names them, comes from the declaration."""

from __future__ import annotations

import pytest

from tailrace.api.option_values import declared
from tailrace.api.options import OPTIONS, Options, changed_options, parse_options, split_options
from tailrace.errors import AnalysisError

OURS = [option for option, _ in declared(Options())]


@pytest.mark.parametrize("option", OURS, ids=lambda option: option.name)
def test_a_default_written_by_a_user_is_the_default(option) -> None:  # type: ignore[no-untyped-def]
    if option.default is not None:
        assert parse_options({option.name: option.default_text}) == Options()


@pytest.mark.parametrize("option", OURS, ids=lambda option: option.name)
def test_what_an_option_does_not_take_is_refused_by_its_name(option) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AnalysisError, match=option.name):
        parse_options({option.name: ""})


def test_names_differ_and_every_option_says_what_it_is_for() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(set(names)) == len(names)
    assert all(option.meaning.endswith(".") and option.values.limits for option in OPTIONS)


def test_a_misspelt_name_is_reported_from_a_sinks_own() -> None:
    assert split_options({"compression": "zstd", "MEMORY": "1GB"}) == ({"memory": "1GB"}, {"compression": "zstd"})
    with pytest.raises(AnalysisError, match="did you mean 'heartbeatTimeout'"):
        split_options({"hartbeatTimeout": "1 second"})


def test_only_what_was_changed_is_shown() -> None:
    assert changed_options(Options()) == []
    shown = changed_options(parse_options({"memory": "1536mb", "localLocation": "OFF", "commitTimeout": "90 seconds"}))
    assert {option.name: value for option, value in shown} == {
        "memory": "1536MB",
        "localLocation": "off",
        "commitTimeout": "1 minute 30 seconds",
    }
