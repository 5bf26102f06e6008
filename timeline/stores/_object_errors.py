"""What an error of obstore's says: access is refused, there is no such bucket, there is no such request."""

from __future__ import annotations

import re

from obstore.exceptions import (
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

_REFUSED = (PermissionDeniedError, UnauthenticatedError)
# S3 answers expired credentials with 400, which obstore reports as any other error.
_EXPIRED_CODES = ("ExpiredToken", "TokenRefreshRequired", "InvalidToken")
_NO_BUCKET_CODES = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")


def is_refused(error: BaseError) -> bool:
    text = str(error)
    if isinstance(error, _REFUSED) or any(code in text for code in _EXPIRED_CODES):
        return True
    return _status(text) in ("401", "403")  # a refused listing comes as obstore's generic error


def is_unsupported(error: BaseError) -> bool:
    return isinstance(error, NotSupportedError) or _status(str(error)) == "501"


def lacks_bucket(error: Exception) -> bool:
    text = str(error)
    return any(code in text for code in _NO_BUCKET_CODES)


def _status(text: str) -> str | None:
    found = re.search(r"^[^<\n]*non-2xx status code: (\d+)", text)
    return found[1] if found else None
