"""What an embedded broker raises itself.

::

    RuntimeError
    └── EmbeddedBrokerError   it is used in a way that cannot work; the text says what would

A configuration that cannot be used is a `common.config.ConfigError`, a data folder that cannot
be used a `store.errors.StoreError`, a taken port an `OSError`.
"""

from __future__ import annotations


class EmbeddedBrokerError(RuntimeError):
    """The embedded broker is not running, runs already, or does not do what was asked."""


def only(error: BaseException) -> BaseException:
    """The one error that a nest of groups holds; the group itself if it holds several."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
