"""When a batch is refused for its rows that fail checks."""

from __future__ import annotations

import pytest

from streaming_sink import Checks, IcebergSink
from streaming_sink.checks.quarantine_table import RowsRefusedError
from streaming_sink.checks.row_checks import RowRules
from streaming_sink.landing.checking import check_failed_rows
from streaming_sink.tasks.results import Sifted, TaskReport
from streaming_sink.writing.writer import WriteResult


@pytest.mark.parametrize(("quarantined", "refused"), [(29, False), (30, True)])
def test_a_share_of_the_rows_is_what_it_says(quarantined: int, refused: bool) -> None:
    """As a float, 0.29 * 100 is 28.999999999999996."""
    options = IcebergSink("/lake/events", checks=Checks({"a": "quarantine"}, at_most=0.29)).options
    tasks = (TaskReport(task=0, attempt=0, rows=100, seconds=0.0, read_seconds=0.0),)
    result = WriteResult((), (), (), tasks, (Sifted((), quarantined, 0, {}, {}),))
    if refused:
        with pytest.raises(RowsRefusedError, match=r"30 of 100 rows .* allows 29"):
            check_failed_rows(RowRules(), result, options)
    else:
        check_failed_rows(RowRules(), result, options)
