"""The figures of upserts beside their peers: which batches count, and which aims a workload has."""

import pytest

from benchmarks.keyed_results import OURS, PLAIN, Result, aims, markdown


def _result(writer: str, milliseconds: float, order: str = "random", **others) -> Result:
    figures = {
        "milliseconds": [9_000.0] * 5 + [milliseconds] * 5,
        "beside_ms": [0.0] * 10,
        "processor_seconds": [9.0] * 5 + [milliseconds / 1000] * 5,
        "load": [1.0] * 10,
        **others,
    }
    return Result(writer, f"{order} int", order, 10, **figures)


def _measured(results: list[Result]) -> dict[str, float | None]:
    return {aim.what.partition(": ")[2]: aim.measured for aim in aims(results)}


def test_the_first_five_batches_do_not_count():
    assert (_result(OURS, 100).median, _result(OURS, 100).processor_mean) == (100, 0.1)


@pytest.mark.parametrize(("batches", "counted"), [(1, 1), (2, 1), (8, 4), (10, 5), (20, 15)])
def test_at_most_half_of_the_batches_are_discarded(batches: int, counted: int):
    assert batches - Result.warm_up_of(batches) == counted


def test_with_random_keys_ours_is_held_against_the_best_peer_and_not_against_its_own_inserts():
    results = [_result(OURS, 100), _result(PLAIN, 50), _result("iceberg", 2_000), _result("delta", 1_500)]
    measured = _measured(results)
    assert measured["median batch, the best peer ÷ ours"] == 15
    assert measured["processor time a batch, the best peer ÷ ours"] == 15


def test_with_growing_keys_ours_is_held_against_a_plain_insert():
    results = [_result(OURS, 150, "growing"), _result(PLAIN, 100, "growing"), _result("delta", 9, "growing")]
    assert _measured(results)["median batch ÷ that of a plain insert of its rows"] == 1.5


def test_what_was_not_run_is_not_measured():
    assert set(_measured([_result(OURS, 100)]).values()) == {None}


def test_the_worse_reader_decides_what_deletes_cost_a_scan():
    ours = _result(OURS, 100, scan_ms={"spark": 11, "duckdb": 15}, clean_scan_ms={"spark": 10, "duckdb": 10})
    assert _measured([ours])["scan ÷ one without deletes, the worse reader"] == 1.5


def test_fewer_than_a_million_changes_do_not_meet_the_aim_of_a_million():
    few = _result(OURS, 100, million_rows=999_999, million_ms=1_000, million_processor_seconds=1.0)
    many = _result(OURS, 100, million_rows=1_000_000, million_ms=12_000, million_processor_seconds=9.0)
    assert _measured([few])["a million changes in a batch, s"] is None
    assert _measured([many])["a million changes in a batch, s"] == 12


def test_a_writer_that_was_stopped_says_so_and_its_time_is_the_least():
    peer = _result("hudi", 0, cut_off="batch 1 took more than 300 s")
    peer.milliseconds, peer.processor_seconds = [300_000.0], [200.0]
    [table] = markdown([_result(OURS, 100), peer])
    assert "| hudi | 1 | > 300,000 |" in table
    assert "hudi was stopped: batch 1 took more than 300 s." in table
    assert peer.is_complete


def test_figures_come_back_from_json():
    ours = _result(OURS, 100, point_ms={"spark": 1.0})
    assert Result.from_dict(ours.as_dict()) == ours
