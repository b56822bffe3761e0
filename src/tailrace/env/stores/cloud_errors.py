"""What a cloud store's client says, as what went wrong, where, and what to do; and whether it may pass.

The type of obstore's error holds only a part of what the store has said; the rest is in the text: the status, and
the store's own code inside an XML answer. Pure functions.
"""

from __future__ import annotations

import re

from obstore.exceptions import (
    BaseError,
    GenericError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from tailrace.errors import CheckpointError

_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|ContainerBeingDeleted|bucket does not exist", re.IGNORECASE)
_NO_RIGHTS = re.compile(r"status code: 40[13]\b|ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch")
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,80})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})</Message>")
_PASSING_CODES = ("RequestTimeout", "SlowDown", "OperationAborted")
_PASSING_STATUS = ("408", "409", "425", "429")
_AGAIN = "then start the query again: it continues from the last durable epoch."


def may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later: no answer, half an answer, or one that asks for patience."""
    text = str(error)
    if not isinstance(error, GenericError) or _NO_RIGHTS.search(text) or _NO_BUCKET.search(text):
        return isinstance(error, ConnectionError | TimeoutError)
    status = _STATUS.search(text)
    if status is None or status[1] in _PASSING_STATUS or any(code in text for code in _PASSING_CODES):
        return True
    return not status[1].startswith("4")


def is_bucket_gone(error: Exception) -> bool:
    return _NO_BUCKET.search(str(error)) is not None


def explained(error: Exception, verb: str, place: str, tried: str = "") -> CheckpointError:
    """``tried``: how long and how often, where it was tried again."""
    said, text = _said(error), str(error)
    if is_bucket_gone(error) or isinstance(error, NotFoundError | FileNotFoundError):
        return CheckpointError(
            f"Cannot {verb} {place}: there is no such bucket or container. Create it, or bring it back and {_AGAIN} "
            "Another place, where the query would begin afresh, is given by the option stateLocation."
        )
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _NO_RIGHTS.search(text):
        return CheckpointError(
            f"Cannot {verb} {place}: the store refuses the credentials ({said}). Check that they are valid and may "
            "read, write, list and delete there (for S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN "
            f"in the environment of the driver and the executors), {_AGAIN}"
        )
    if isinstance(error, NotSupportedError):
        return CheckpointError(
            f"Cannot {verb} {place}: the store does not support it ({said}). "
            "Choose a state location that supports conditional puts."
        )
    if tried:
        return CheckpointError(
            f"Cannot {verb} {place}: {tried}; the last trouble: {said}. "
            f"Check that the store is up and can be reached from here, {_AGAIN}"
        )
    return CheckpointError(
        f"Cannot {verb} {place}: {said}. Check the address, the credentials and the network, {_AGAIN}"
    )


def _said(error: Exception) -> str:
    """The store's own words where it has answered, else the client's first line."""
    text = str(error).strip()
    code, message, status = _CODE.search(text), _MESSAGE.search(text), _STATUS.search(text)
    if isinstance(error, BaseError) and code is not None:
        words = [code[1], message[1].rstrip(".") if message is not None else ""]
        return ": ".join(word for word in words if word) + (f", status {status[1]}" if status is not None else "")
    return text.split("\n", 1)[0].rstrip(".")
