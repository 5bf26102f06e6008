"""Answers of a catalog that are no clean success, by whether the request may have had its effect."""

from __future__ import annotations

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


def is_refusal(failure: Exception) -> bool:
    """Return whether a catalog says that this request had no effect; a copy of it may have had it before.
    After anything else it may have had it, or may have it later.
    """
    return isinstance(failure, _REFUSALS) and not isinstance(failure, ValidationError)


def unclear() -> tuple[type[Exception], ...]:
    """Return the errors after which a request may have had its effect, or may have it later."""
    found: list[type[Exception]] = [CommitStateUnknownException, OSError, RESTError, ValidationError]
    try:
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        return tuple(found)
    return (*found, SQLAlchemyError)


def forbidden() -> tuple[type[Exception], ...]:
    """Return the errors that say that this user may not, or that the catalog does not offer it."""
    found: list[type[Exception]] = [ForbiddenError, NotImplementedError]
    try:
        from sqlalchemy.exc import ProgrammingError
    except ImportError:
        return tuple(found)
    return (*found, ProgrammingError)
