"""The protections of a worker, which restrict it to its pipes.

All of them are tried, and the results are reported. Before uploaded code is sent, the filter server
checks that those it requires are in force (`sandbox.missing_protections`). docs/security.md
explains the purpose of each.
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
"""First of the user ids for workers. Ids from here on are unused: systemd uses lower ones.

The user id of a worker is this plus its process id, so that no other process has the same.
"""

STACK_BYTES = 8 << 20
"""Stack size of the first thread, and the C library's default for others. Linux's default."""

ADDRESS_SPACE_BYTES = 256 << 20
"""Largest size of read-only mappings (libraries and files), in addition to the memory.

Without a limit, their page tables would be memory that no other limit counts.
"""

PROGRAM_ADDRESS_SPACE_BYTES = 2 << 30
"""The same for a JVM, which reserves address space that it may never use."""


class Settings:
    """The settings of a worker, from START. They come from the filter server, not from uploads.

    Attributes:
      parent: process id of the filter server.
      memory: largest size of the memory, in bytes.
      tasks: largest number of threads.
      files: largest number of descriptors.
      cpu: largest CPU time in seconds; 0: no limit.
      read: files and folders that can be read.
      execute: files that the launcher may execute.
      program: program to execute, with its arguments; empty: run the filter in Python.
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
    """Enables the protections, and records the results.

    Attributes:
      in_force: details of the enabled protections, by name.
      lacking: reasons for the others, by name.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.in_force: dict[str, str] = {}
        self.lacking: dict[str, str] = {}

    def enter(self, program: tuple[int, int] | None) -> None:
        """Enable all protections, in an order in which none prevents a later one.

        Args:
          program: see `seccomp.assemble`.
        """
        self._try("limits", self._limit_resources)
        self._try("namespaces", self._unshare)  # as root it needs privileges, dropped below
        self._try("user", self._switch_user)
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
        """Enter new, empty namespaces of networks and shared memory.

        A process namespace would need a second process, and is not necessary: the system calls that
        take other processes are blocked.
        """
        flags = libc.CLONE_NEWNET | libc.CLONE_NEWIPC
        # Without root, a user namespace gives the privileges for the other namespaces.
        as_root = os.geteuid() == 0
        libc.call("unshare", flags if as_root else flags | libc.CLONE_NEWUSER)
        return "network, ipc" if as_root else "user, network, ipc"

    def _switch_user(self) -> str:
        if os.geteuid() != 0:
            raise OSError("only root can switch to another user")
        for path in self._settings.read:
            closed = _closed_to_others(path)
            if closed:
                raise OSError(f"it runs as root, because other users cannot read {closed}")
        user = OWN_USER_FIRST + os.getpid()
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        return str(user)

    def _limit_threads(self) -> str:
        """Limit the threads, if the user is the worker's alone: the kernel counts them by user."""
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
        if os.getppid() != self._settings.parent:  # the parent died before the call
            os._exit(1)
        return "ends with the filter server"

    def _filter_calls(self, program: tuple[int, int] | None) -> str:
        if "privileges" in self.lacking:
            raise OSError("it needs the protection `privileges`")
        machine = os.uname().machine
        if machine not in seccomp.MACHINES:
            raise OSError(f"the numbers of system calls on {machine} are unknown")
        seccomp.install(seccomp.assemble(machine, os.getpid(), program))
        seccomp.check(machine)
        return "seccomp"


def _closed_to_others(path: str) -> str | None:
    """The path, or the nearest folder above it, that only its owner or group can open; or None."""
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
