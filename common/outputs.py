"""Standard output and error of a command that may be full, closed, or a pipe without a reader.

Python reports a failed write as an OSError somewhere in the program, and once more when the process
ends. Inside `guarded_outputs` a failed write to standard output is an OutputError, which ends the
command with one line; one to standard error is dropped, as there is no place to report it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TextIO, cast

EXIT_FAILED: Final = 1


class OutputError(Exception):
    """Standard output cannot be written.

    Not an OSError, so that no handler for files and sockets takes it for its own.

    Attributes:
      has_no_reader: the reader of the pipe has gone, as `head` does after its last line.
    """

    def __init__(self, error: OSError | ValueError) -> None:
        is_open = isinstance(error, OSError) and error.errno != errno.EBADF
        reason = error.strerror if isinstance(error, OSError) and is_open else "it is closed"
        super().__init__(f"cannot write to standard output: {reason}")
        self.has_no_reader = isinstance(error, BrokenPipeError)


@contextlib.contextmanager
def guarded_outputs() -> Iterator[None]:
    """Guard the outputs of this process, and flush standard output at the end.

    Raises: OutputError: standard output cannot be written. It then goes nowhere, so that nothing
      fails again when the process ends.
    """
    _fill_closed_descriptors()
    out, err = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, _Guarded(out, is_reported=True))
    guarded = _Guarded(err, is_reported=False)
    sys.stderr = cast(TextIO, guarded)
    try:
        yield
        sys.stdout.flush()
    except BaseException as error:
        if any(isinstance(leaf, OutputError) for leaf in leaves(error)):
            _silence(out)
        else:
            # The process ends with another error; what was printed before it is still wanted.
            with contextlib.suppress(OutputError):
                sys.stdout.flush()
        raise
    finally:
        sys.stderr.flush()
        if guarded.has_failed:
            _silence(err)
        sys.stdout, sys.stderr = out, err


def run_guarded(main: Callable[[], int], report: Callable[[str], object]) -> int:
    """Run a program with guarded outputs; returns its exit status, 1 if its output failed.

    Args:
      report: called with why, unless the reader of a pipe has gone, which is no fault.
    """
    try:
        with guarded_outputs():
            return main()
    except (OutputError, BaseExceptionGroup) as error:
        failed = [leaf for leaf in leaves(error) if isinstance(leaf, OutputError)]
        if not failed:
            raise
        if not failed[0].has_no_reader:
            report(str(failed[0]))
        return EXIT_FAILED


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, and in the groups in it; or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


class _Guarded:
    """A stream, or the bytes below it, whose failed writes are an OutputError or dropped."""

    def __init__(self, inner: Any, *, is_reported: bool) -> None:
        self._inner = inner
        self._is_reported = is_reported
        self.has_failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._inner)

    @property
    def buffer(self) -> _Guarded:
        """The bytes below a text stream."""
        return _Guarded(self._inner.buffer, is_reported=self._is_reported)

    def write(self, data: Any) -> int:
        """Write; what cannot be written to standard error is dropped."""
        with self._guard():
            return int(self._inner.write(data))
        return len(data)

    def writelines(self, lines: Iterable[Any]) -> None:
        """Write several."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._guard():
            self._inner.flush()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            if isinstance(error, UnicodeError):
                raise
            self.has_failed = True
            if self._is_reported:
                raise OutputError(error) from error


def _fill_closed_descriptors() -> None:
    """Open what the caller closed, as with `>&-`: writes fail, and no file gets these numbers."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is not None:
            continue
        # Standard output that is open for reading only fails as a closed one does: EBADF.
        wanted = os.open(os.devnull, os.O_RDONLY if number < 2 else os.O_WRONLY)
        if wanted != number:
            os.dup2(wanted, number)
            os.close(wanted)
        stream = os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)
        setattr(sys, name, stream)


def _silence(stream: TextIO) -> None:
    """Have what is left in a stream's buffer go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()
