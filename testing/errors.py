"""The errors of an embedded broker.

::

    RuntimeError
    └── EmbeddedBrokerError   it is used wrongly; the text says how to use it

Others are raised by the servers: `common.config.ConfigError` for an invalid configuration,
`store.errors.StoreError` for an unusable data folder, `OSError` for a port that is in use.
"""

from __future__ import annotations


class EmbeddedBrokerError(RuntimeError):
    """The embedded broker is not running, runs already, or refuses a request."""


def unwrap(error: BaseException) -> BaseException:
    """The error inside nested exception groups, if they hold only one; otherwise the group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
