"""Which failures pass for an interruption of the batch, and what is kept of them."""

from __future__ import annotations

import logging

import pytest
from py4j.protocol import Py4JError

from streaming_sink.spark.interruption import BatchInterruptedError, brief_interruption

_CALL = "An error occurred while calling o7.collectToPython.\n: "


@pytest.mark.parametrize(
    "line",
    [
        "java.lang.InterruptedException",
        "org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group",
    ],
)
def test_an_interruption_keeps_its_line_and_logs_the_rest(
    caplog: pytest.LogCaptureFixture, line: str
) -> None:
    with (
        caplog.at_level(logging.INFO, logger="streaming_sink"),
        pytest.raises(BatchInterruptedError) as raised,
        brief_interruption(4),
    ):
        raise Py4JError(f"{_CALL}{line}\n\tat a.b.C\n" + "\tat d.e.F\n" * 1_000)
    assert f"({line})" in str(raised.value)
    assert len(str(raised.value)) < 500
    assert raised.value.__suppress_context__
    assert "at d.e.F" in caplog.text


def test_what_failed_stays_in_the_message_where_an_interruption_is_only_beside_it() -> None:
    beside = "\tSuppressed: java.lang.InterruptedException\n"
    text = f"{_CALL}java.sql.SQLException: it has expired\n\tat a.b\n{beside}"
    with pytest.raises(BatchInterruptedError) as raised, brief_interruption(4):
        raise Py4JError(text)
    assert "(java.sql.SQLException: it has expired … Suppressed: java.lang.Interr" in str(raised.value)


class GoneError(Py4JError):  # type: ignore[misc]
    """One whose text the JVM would have to give, and it has ended."""

    __module__ = "py4j.protocol"

    def __str__(self) -> str:
        raise ConnectionRefusedError("nobody listens")


def test_a_failure_without_a_text_is_raised_as_it_is() -> None:
    failure = GoneError()
    with pytest.raises(GoneError) as raised, brief_interruption(4):
        raise failure
    assert raised.value is failure


@pytest.mark.parametrize(
    "failure",
    [
        Py4JError(f"{_CALL}java.io.InterruptedIOException: getFileStatus on s3a://b/k: Read timed out\n"),
        Py4JError(f"{_CALL}org.apache.spark.SparkException: Job aborted due to stage failure\n"),
        RuntimeError("java.lang.InterruptedException, says a function of the user"),
    ],
)
def test_any_other_failure_is_raised_as_it_is(failure: Exception) -> None:
    with pytest.raises(type(failure)) as raised, brief_interruption(4):
        raise failure
    assert raised.value is failure
