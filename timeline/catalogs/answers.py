"""Answers of a catalog that are no clean success, by whether the request may have had its effect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pydantic import ValidationError
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
)

_REFUSALS: tuple[type[Exception], ...] = (
    CommitFailedException,
    TableAlreadyExistsError,
    NoSuchTableError,
    BadRequestError,
    ForbiddenError,
    UnauthorizedError,
    ValueError,
    KeyError,
)
"""Answers to a request that had no effect, or whose copy had it before. The plain ones are of
pyiceberg's own catalogs, for conflicts of sequence numbers and of properties.
"""


_TIMED_OUT = ("OperationTimeoutException", "RequestTimeout", "RequestTimeoutException")
"""AWS answers so with a status of refusals, though the request may have had its effect."""

_NO_ACCESS = (
    "AccessDeniedException",
    "ExpiredTokenException",
    "InvalidSignatureException",
    "UnrecognizedClientException",
)
"""Glue says so with a status of 400."""

_NO_PRIVILEGE = "42501"
"""SQL's state of a statement that its user may not run, which PostgreSQL then does not run."""


def is_refusal(failure: Exception) -> bool:
    """Return whether a catalog says that this request had no effect; a copy of it may have had it before.
    After anything else it may have had it, or may have it later.
    """
    if _status_of(failure) in range(400, 500):
        return _code_of(failure) not in _TIMED_OUT
    if _sql_state_of(failure) == _NO_PRIVILEGE:
        return True
    return isinstance(failure, _REFUSALS) and not isinstance(failure, ValidationError)


def unclear() -> tuple[type[Exception], ...]:
    """Return the errors after which a request may have had its effect, or may have it later."""
    found: list[type[Exception]] = [CommitStateUnknownException, OSError, RESTError, ValidationError]
    with suppress(ImportError):
        from sqlalchemy.exc import SQLAlchemyError

        found.append(SQLAlchemyError)
    with suppress(ImportError):
        from botocore.exceptions import BotoCoreError, ClientError

        found += [BotoCoreError, ClientError]
    with suppress(ImportError):
        from thrift.Thrift import TException

        found.append(TException)
    return tuple(found)


def is_access_refused(failure: BaseException | None) -> bool:
    """Return whether a catalog says that this user may not, or that it does not know the user."""
    if isinstance(failure, ForbiddenError | UnauthorizedError):
        return True
    return isinstance(failure, Exception) and (
        _status_of(failure) in (401, 403)
        or _code_of(failure) in _NO_ACCESS
        or _sql_state_of(failure) == _NO_PRIVILEGE
    )


def is_forbidden(failure: Exception) -> bool:
    """Return whether it is said that this user may not, or that the catalog does not offer it."""
    if isinstance(failure, ForbiddenError | NotImplementedError):
        return True
    # Glue says so with 400 and a code, PostgreSQL by an error of the statement.
    denied = "AccessDenied" in str(getattr(failure, "response", "")) or _status_of(failure) == 403
    return denied or type(failure).__name__ == "ProgrammingError"


def _status_of(failure: Exception) -> int:
    """Return the status that AWS has answered with; 0 for other errors."""
    return int(_answer_of(failure).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code_of(failure: Exception) -> str:
    return str(_answer_of(failure).get("Error", {}).get("Code", ""))


def _sql_state_of(failure: Exception) -> str:
    """Return the state by which psycopg or psycopg2 says what a statement has met; "" for other errors."""
    error = getattr(failure, "orig", None)
    return str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")


def _answer_of(failure: Exception) -> dict[str, Any]:
    answer = getattr(failure, "response", None)
    return answer if isinstance(answer, dict) else {}


@contextmanager
def new_table() -> Iterator[None]:
    """Within: a table is created where its catalog says. ValueError where that does not know where."""
    try:
        yield
    except ValueError as failure:
        if "No default path" not in str(failure):  # pyiceberg's, of a SQL catalog
            raise
        raise ValueError(
            "the catalog does not know where new tables go, and this sink makes one, if only to try the"
            f' catalog: give it its "warehouse", a folder or a URL ({failure})'
        ) from failure
