"""Each aim is reported with its figure, and a missed or unmeasured aim makes `--check` fail."""

import json

import pytest

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.commits import Stream, aims
from benchmarks.microbatch import DEFAULT, Result
from benchmarks.microbatch import aims as microbatch_aims


def _conclude(arguments, found):
    options = benchmark_parser("benchmarks.example", "An example.", "less").parse_args(arguments)
    return conclude(options, "", ["| table |"], {"figure": 1}, found)


MET = Aim(what="ratio", bound=0.8, measured=0.79)


@pytest.mark.parametrize(
    ("aim", "met"),
    [
        (MET, True),
        (Aim(what="ratio", bound=0.8, measured=0.8), True),
        (Aim(what="ratio", bound=0.8, measured=0.81), False),
        (Aim(what="commits", bound=250, measured=250, at_least=True), True),
        (Aim(what="commits", bound=250, measured=249, at_least=True), False),
        (Aim(what="ratio", bound=0.8, measured=None), False),
        (Aim(what="commits", bound=250, measured=None, at_least=True), False),
    ],
)
def test_an_aim_is_met_only_by_a_measured_figure_on_the_right_side_of_its_bound(aim, met, capsys):
    assert aim.met is met
    assert _conclude(["--check"], [MET, aim]) == (0 if met else 1)
    assert f"| {'yes' if met else 'NO'} |" in capsys.readouterr().out


def test_without_check_a_missed_aim_is_no_failure(capsys):
    assert _conclude([], [Aim(what="ratio", bound=0.8, measured=2)]) == 0
    assert "aim" not in capsys.readouterr().out


def test_json_goes_to_standard_output_alone(capsys):
    assert _conclude(["--check", "--json"], [MET]) == 0
    printed = capsys.readouterr()
    data = json.loads(printed.out)
    assert data["aims"] == [{"aim": "ratio", "bound": "<= 0.8", "measured": 0.79, "met": True}]
    assert data["figure"] == 1
    assert "| table |" in printed.err


def test_json_and_tables_go_to_files(tmp_path, capsys):
    found, table = tmp_path / "found.json", tmp_path / "table.md"
    _conclude(["--json", str(found), "--markdown", str(table)], [MET])
    assert json.loads(found.read_text())["aims"][0]["met"] is True
    assert table.read_text().endswith("| table |\n")
    assert "| table |" in capsys.readouterr().out


def test_commits_measure_growth_and_the_slowest_mark():
    stream = Stream(None, "append", [0.001] * 2_400 + [0.004] * 100 + [0.001] * 7_400 + [0.006] * 100)
    growth, slowest = aims([stream])
    assert (growth.measured, growth.met) == (pytest.approx(1.5), False)
    assert (slowest.measured, slowest.met) == (pytest.approx(6.0), True)
    assert [aim.measured for aim in aims([Stream(None, "append", [0.001] * 100)])] == [None, None]


def test_a_stream_is_compared_with_the_peer_by_median_tail_sum_and_first_batch():
    ours = Result(
        DEFAULT, "unpartitioned", 50_000, [[3000, *[100] * 19, 400], [3000, *[100] * 20]], drained=[0, 0]
    )
    peer = Result("iceberg", "unpartitioned", 50_000, [[2000, *[200] * 20]] * 2, drained=[0, 0])
    firsts = {"unpartitioned": {DEFAULT: [2500, 900, 2400], "iceberg": [2000, 2000, 9000]}}
    measured = {aim.what: aim.measured for aim in microbatch_aims([ours, peer], firsts)}
    assert measured["median of 50,000-row batches, unpartitioned, ÷ Iceberg"] == 0.5
    assert measured["95th percentile of 50,000-row batches, unpartitioned, ÷ Iceberg"] == 0.5
    assert measured["sum of all of 50,000-row batches, unpartitioned, ÷ Iceberg"] == pytest.approx(
        5150 / 6000
    )
    assert measured["first batch, unpartitioned, ÷ Iceberg"] == 1.2
    unmeasured = {what for what, figure in measured.items() if figure is None}
    assert len(unmeasured) == 6
    assert all("partitioned" in what or "500,000" in what for what in unmeasured)
