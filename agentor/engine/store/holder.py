"""Who holds a run, as a lease row or object says it, and whether that worker can still be alive."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agentor.errors import Fenced, RunBusy

FOREVER_S = float("inf")  # the time of a lease that only its holder's end ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One lease as it is stored. Times are epoch seconds of the store's clock.

    Attributes:
        machine: What tells apart where process ids are counted (`this_machine`).
        expires: None once it was given back.
    """

    epoch: int = 0
    owner: str | None = None
    host: str | None = None
    pid: int | None = None
    machine: str | None = None
    since: float | None = None
    expires: float | None = None

    @classmethod
    def here(cls, epoch: int, owner: str, now: float, ttl_s: float) -> Holder:
        """This process as the holder from now on."""
        return cls(
            epoch=epoch,
            owner=owner,
            host=socket.gethostname(),
            pid=os.getpid(),
            machine=this_machine(),
            since=now,
            expires=now + ttl_s,
        )

    def holds(self, now: float) -> bool:
        """True unless the lease was given back, has run out, or its process is known to be dead."""
        return self.expires is not None and self.expires > now and not self.is_dead()

    def is_dead(self) -> bool:
        """True if the process is known to be gone; only its own machine can tell."""
        if self.pid is None or self.machine is None or self.machine != this_machine():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def check_held(self, run_id: str, epoch: int) -> None:
        """Refuse a worker whose lease, with this epoch, is over.

        Raises:
            Fenced: it was given back, or another worker has the run.
        """
        if self.epoch != epoch or self.expires is None:
            raise self.fenced(run_id, epoch)

    def check_free(self, run_id: str, now: float, epoch: int | None = None) -> None:
        """Refuse whoever wants the run while somebody else holds it.

        Raises:
            RunBusy: the caller, with this epoch or none, is not who holds it.
        """
        if self.epoch != epoch and self.holds(now):
            raise self.busy(run_id)

    def busy(self, run_id: str) -> RunBusy:
        """The error for whoever wants the run meanwhile."""
        ends = None if self.expires == FOREVER_S else self.expires
        return RunBusy(run_id, self.owner, self.host, self.pid, self.since, ends)

    def fenced(self, run_id: str, epoch: int) -> Fenced:
        """The error for a worker that writes under `epoch`, while this is the run's lease."""
        if self.epoch == epoch:
            return Fenced(run_id, f"this worker's lease (epoch {epoch}) was given back")
        who = f"{self.owner} (pid {self.pid} on {self.host})" if self.owner else "another worker"
        return Fenced(run_id, f"this worker had epoch {epoch}, now {who} has epoch {self.epoch}")


@cache
def this_machine() -> str | None:
    """One boot of one machine and one space of process ids in it; None where that is not known.

    Host names will not do: containers that share one may count their processes apart.
    """
    if sys.platform != "linux":
        return f"{sys.platform}:{socket.gethostname()}"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None
