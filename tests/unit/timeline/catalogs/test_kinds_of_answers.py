"""Which answers of a catalog say that a request had no effect, and which leave it open."""

from __future__ import annotations

import psycopg
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from sqlalchemy.exc import OperationalError, ProgrammingError

from timeline.catalogs.answers import is_access_refused, is_forbidden, is_refusal


def of_aws(code: str, status: int) -> ClientError:
    stated = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(stated, "UpdateTable")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("failure", "refused"),
    [
        (CommitFailedException("409"), True),
        (CommitStateUnknownException("504"), False),
        (ConnectionError("reset"), False),
        (of_aws("ConcurrentModificationException", 400), True),
        (of_aws("AccessDeniedException", 400), True),
        (of_aws("OperationTimeoutException", 400), False),
        (of_aws("RequestTimeout", 400), False),
        (of_aws("InternalServiceException", 500), False),
        (ReadTimeoutError(endpoint_url="glue"), False),
    ],
)
def test_a_time_out_is_no_refusal_whatever_its_status(failure: Exception, refused: bool) -> None:
    assert is_refusal(failure) is refused


def test_what_aws_denies_is_forbidden() -> None:
    assert is_forbidden(of_aws("AccessDeniedException", 400))
    assert not is_forbidden(of_aws("ConcurrentModificationException", 400))


def test_what_postgresql_denies_had_no_effect_and_other_errors_may_have_had_it() -> None:
    denied = ProgrammingError("UPDATE iceberg_tables", {}, psycopg.errors.InsufficientPrivilege("denied"))
    assert is_refusal(denied)
    assert is_access_refused(denied)
    lost = OperationalError("COMMIT", {}, psycopg.OperationalError("server closed the connection"))
    assert not is_refusal(lost)
    assert not is_access_refused(lost)
