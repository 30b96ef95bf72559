"""What keeps a worker from everything but its two pipes, put in force one after the other.

Each is tried, and what came of it is reported: which of them a filter cannot do without is for the
filter server to say (`sandbox.missing`), before any uploaded code is here. What each is good for is
written in docs/security.md.
"""

from __future__ import annotations

import os
import resource
import stat

from . import landlock, libc, seccomp

TYPE_CHECKING = False  # see frames
if TYPE_CHECKING:
    from collections.abc import Callable

OWN_USER_FIRST = 0x7000_0000
"""Users from here on belong to nobody: systemd gives containers those below, and nothing these.

A worker is this one plus its process id, so that no other process has the same user.
"""

STACK_BYTES = 8 << 20
"""Of the first thread, and what the C library takes for each other one. Linux's own default."""

ADDRESS_SPACE_BYTES = 256 << 20
"""What there may be of mappings besides memory: libraries and files, read only.

Without a limit their page tables would be memory that nobody counts.
"""

PROGRAM_ADDRESS_SPACE_BYTES = 2 << 30
"""The same for a JVM, which also reserves what it may never use."""


class Settings:
    """What the filter server wants, from START. Our own words: nothing here was uploaded.

    Attributes:
      parent: the filter server's process id.
      memory: bytes.
      tasks: threads.
      files: descriptors.
      cpu: seconds; 0: no limit.
      read: what may be read.
      execute: the files of the program that the launcher becomes.
      program: that and its arguments; empty: the launcher runs the filter itself, in Python.
    """

    def __init__(self, values: dict[str, list[str]]) -> None:
        self.parent = int(values["parent"][0])
        self.memory = int(values["memory"][0])
        self.tasks = int(values["tasks"][0])
        self.files = int(values["files"][0])
        self.cpu = int(values["cpu"][0])
        self.read = values.get("read", [])
        self.execute = values.get("execute", [])
        self.program = values.get("program", [])


class Protections:
    """Puts them in force, in this order, and keeps what came of each.

    Attributes:
      in_force: name and what it is.
      lacking: name and why.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.in_force: dict[str, str] = {}
        self.lacking: dict[str, str] = {}

    def enter(self, program: tuple[int, int] | None) -> None:
        """Put all of them in force.

        Args:
          program: see `seccomp.assemble`.
        """
        self._try("limits", self._limit_resources)
        self._try("namespaces", self._unshare)  # needs privileges, if root; they go after it
        self._try("user", self._become_nobody)
        self._try("threads", self._limit_threads)
        self._try("privileges", self._drop_privileges)
        self._try("files", lambda: landlock.restrict(self._settings.read, self._settings.execute))
        self._try("life", self._die_with_parent)  # a new user or namespace would undo it
        self._try("system calls", lambda: self._filter_calls(program))

    def _try(self, name: str, step: Callable[[], str]) -> None:
        try:
            self.in_force[name] = step()
        except (OSError, ValueError) as error:
            self.lacking[name] = str(error)

    def _limit_resources(self) -> str:
        settings = self._settings
        mappings = PROGRAM_ADDRESS_SPACE_BYTES if settings.program else ADDRESS_SPACE_BYTES
        limits = [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_MEMLOCK, 0),
            (resource.RLIMIT_NOFILE, settings.files),
            (resource.RLIMIT_STACK, STACK_BYTES),
            (resource.RLIMIT_DATA, settings.memory),
            (resource.RLIMIT_AS, settings.memory + mappings),
        ]
        if settings.cpu:
            limits.append((resource.RLIMIT_CPU, settings.cpu))
        for which, most in limits:
            _, hard = resource.getrlimit(which)
            if hard != resource.RLIM_INFINITY:
                most = min(most, hard)
            resource.setrlimit(which, (most, most))
        return f"{settings.memory >> 20} MiB"

    def _unshare(self) -> str:
        """Networks and shared memory of its own: none.

        No process namespace: it would need a second process to hold it, and the calls that name
        other processes are gone anyway.
        """
        apart = libc.CLONE_NEWNET | libc.CLONE_NEWIPC
        # Whoever is not root becomes it in a namespace of users, and may then have the others.
        as_root = os.geteuid() == 0
        libc.call("unshare", apart if as_root else apart | libc.CLONE_NEWUSER)
        return "network, ipc" if as_root else "user, network, ipc"

    def _become_nobody(self) -> str:
        if os.geteuid() != 0:
            raise OSError("only root can take another")
        for path in self._settings.read:
            closed = _closed_to_others(path)
            if closed:
                raise OSError(f"root stays, for {closed} is closed to others")
        user = OWN_USER_FIRST + os.getpid()
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        return str(user)

    def _limit_threads(self) -> str:
        """Only where nobody else's count: the kernel counts them by user."""
        if "user" not in self.in_force and "user" not in self.in_force.get("namespaces", ""):
            raise OSError("the user is shared with other processes")
        tasks = self._settings.tasks
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))
        return str(tasks)

    def _drop_privileges(self) -> str:
        libc.drop_capabilities()
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        return "none, and no new ones"

    def _die_with_parent(self) -> str:
        libc.prctl(libc.PR_SET_PDEATHSIG, libc.SIGKILL)
        if os.getppid() != self._settings.parent:  # too late to be told
            os._exit(1)
        return "ends with the filter server"

    def _filter_calls(self, program: tuple[int, int] | None) -> str:
        if "privileges" in self.lacking:
            raise OSError("not without giving up privileges")
        machine = os.uname().machine
        if machine not in seccomp.MACHINES:
            raise OSError(f"its numbers of system calls on {machine} are not known here")
        seccomp.install(seccomp.assemble(machine, os.getpid(), program))
        seccomp.check(machine)
        return "seccomp"


def _closed_to_others(path: str) -> str | None:
    """The first folder on the way, or the file itself, that only its owner or group can open."""
    if not os.path.exists(path):  # noqa: PTH110 - pathlib takes 10 ms to import
        return None
    at = path
    needed = stat.S_IROTH
    while True:
        if not os.stat(at).st_mode & needed:  # noqa: PTH116
            return at
        if at == "/":
            return None
        at = os.path.dirname(at)  # noqa: PTH120
        needed = stat.S_IXOTH
