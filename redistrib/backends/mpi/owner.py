"""The base of executors, whose ranks create, run and free them together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from mpi4py import MPI

from redistrib.backends.mpi.groups import Groups
from redistrib.errors import CommunicatorError


class CommunicatorOwner(ABC):
    """A duplicate of a communicator, with groups of its ranks, until it is freed."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm: MPI.Intracomm = comm.Dup()
        self._groups = Groups(self.comm)
        self._open = True

    def _require_open(self) -> None:
        if not self._open:
            raise CommunicatorError("this executor was freed; make another with to_mpi")

    def free(self) -> None:
        """Release all communicators, datatypes and shared memory; collective. Results stay valid.

        A second call does nothing.
        """
        if self._open:
            self._open = False
            self._release()
            self._groups.free()
            self.comm.Free()

    @abstractmethod
    def _release(self) -> None:
        """Release all but the communicator and its groups; collective."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:  # after an error the ranks may not be together any more
            self.free()
