"""What comes out of a nursery as its only error."""

from __future__ import annotations


def only_error(error: BaseException) -> BaseException:
    """What a nursery wrapped, if that is one error; a group of several as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
