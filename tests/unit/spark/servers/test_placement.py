"""Which server owns which shards, by properties: every shard has one owner, and no more shards move than must."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import StateServerError
from tailrace.server.transport.server_config import ServerAddress
from tailrace.spark.servers.placement import Placement


def server(number: int) -> ServerAddress:
    return ServerAddress(f"s{number}", f"grpc+unix:///s{number}", "here", number, number, "")


def servers(*numbers: int) -> list[ServerAddress]:
    return [server(number) for number in numbers]


@given(count=st.integers(1, 20), shards=st.integers(1, 200))
def test_ranges_are_even_and_cover_every_shard_once(count: int, shards: int) -> None:
    placement = Placement.even(servers(*range(count)), shards)
    owned = [shard for each in placement.servers for shard in placement.shards_of(each)]
    assert owned == list(range(shards))
    sizes = [high - low for low, high in placement.ranges]
    assert max(sizes) - min(sizes) <= 1
    assert [placement.owner(shard) for shard in owned] == [
        each for each in placement.servers for _ in placement.shards_of(each)
    ]


@given(data=st.data(), count=st.integers(1, 12), shards=st.integers(1, 64))
def test_survivors_keep_their_shards(data: st.DataObject, count: int, shards: int) -> None:
    placement = Placement.even(servers(*range(count)), shards)
    for round_ in range(3):
        lost = data.draw(st.sets(st.sampled_from([each.server for each in placement.servers])))
        new = servers(*range(100 * (round_ + 1), 100 * (round_ + 1) + data.draw(st.integers(0, 5))))
        survivors = [each for each in placement.servers if each.server not in lost]
        living = data.draw(st.permutations([*survivors, *new]))
        if not living:
            continue
        after = placement.reassigned(living)
        owned = [shard for each in after.servers for shard in after.shards_of(each)]
        assert owned == list(range(shards))
        assert set(after.servers) <= set(living)
        for each in survivors:
            assert set(placement.shards_of(each)) <= set(after.shards_of(each))
        if not lost:
            assert after == placement
        elif survivors:
            lost_ranges = len({at for at, each in enumerate(placement.servers) if each.server in lost})
            if len(new) >= lost_ranges:  # enough to take over everything: survivors get nothing more
                for each in survivors:
                    assert placement.shards_of(each) == after.shards_of(each)
        placement = after


def test_a_replacement_takes_exactly_what_was_lost() -> None:
    placement = Placement.even(servers(0, 1, 2), 9)
    assert placement.reassigned(servers(0, 7, 2)) == Placement(tuple(servers(0, 7, 2)), (0, 3, 6, 9))
    assert placement.reassigned(servers(0, 2)) == Placement(tuple(servers(0, 2)), (0, 4, 9))
    assert placement.reassigned(servers(7, 8, 2)) == Placement(tuple(servers(7, 8, 2)), (0, 3, 6, 9))
    assert placement.reassigned(servers(2)) == Placement((server(2),), (0, 9))
    assert placement.reassigned(servers(5, 6)) == Placement.even(servers(5, 6), 9)


def test_no_server_at_all_is_an_error() -> None:
    with pytest.raises(StateServerError):
        Placement.even([], 4)
    with pytest.raises(StateServerError):
        Placement.even(servers(1), 4).reassigned([])


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    count = draw(st.integers(1, 8))
    shards = draw(st.integers(count, 64))
    cuts = (
        sorted(draw(st.sets(st.integers(1, shards - 1), min_size=count - 1, max_size=count - 1))) if count > 1 else []
    )
    return Placement(tuple(servers(*range(count))), (0, *cuts, shards))


@given(data=st.data(), placement=placements(), shards_max=st.integers(1, 20))
def test_shards_move_a_few_at_a_time_until_all_servers_have_their_share(
    data: st.DataObject, placement: Placement, shards_max: int
) -> None:
    stays = data.draw(st.sets(st.sampled_from(placement.servers)))
    wanted = data.draw(st.permutations([*stays, *servers(*range(100, 100 + data.draw(st.integers(not stays, 5))))]))
    for _ in range(1000):
        target = placement.balanced(wanted)
        if target == placement:
            break
        after = placement.toward(target, shards_max)
        owners = [(placement.owner(shard), after.owner(shard)) for shard in range(placement.shards)]
        moved = sum(before != now for before, now in owners)
        assert moved >= 1 and after.gained(placement) == moved
        assert moved <= max(shards_max, len(placement.servers) + len(target.servers)), "a step of each end is the least"
        assert after.version == placement.version + 1
        ranges = dict(zip(after.servers, after.ranges, strict=True))
        changed = {each for pair in owners if pair[0] != pair[1] for each in pair}
        assert after.moved(placement) == {each: ranges.get(each, (0, 0)) for each in changed}
        placement = after
    else:
        raise AssertionError("it does not come to an end")
    assert set(placement.servers) <= set(wanted)
    assert stays <= set(placement.servers)
    sizes = [high - low for low, high in placement.ranges]
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == min(len(wanted), placement.shards)


def test_one_that_joins_takes_its_share_and_one_that_leaves_is_replaced_in_its_place() -> None:
    placement = Placement.even(servers(0, 1), 12)
    joined = placement.balanced(servers(0, 1, 2))
    assert joined == Placement(tuple(servers(0, 2, 1)), (0, 4, 8, 12))
    assert joined.gained(placement) == 4
    replaced = joined.balanced(servers(0, 1, 3))
    assert replaced == Placement(tuple(servers(0, 3, 1)), (0, 4, 8, 12))
    assert joined.toward(replaced, 3) == Placement(tuple(servers(0, 2, 3, 1)), (0, 4, 5, 8, 12))
    assert joined.toward(replaced, 100).toward(replaced, 1) == replaced


def test_shards_of_servers_that_stay_do_not_move_without_need() -> None:
    placement = Placement.even(servers(0, 1, 2), 9)
    assert placement.balanced(servers(2, 1, 0)) is placement
    assert placement.toward(placement, 5) is placement
