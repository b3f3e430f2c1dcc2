"""What torchrun leaves to its workers: a name for the launch, and a store that remembers too much.

The store of torchrun's agent outlives a restart of the workers, and with it the addresses of those that died. Gloo and
NCCL look those up under the same keys each time, so that a restarted worker calls a dead one (torch 2.15; seen with
Gloo under the c10d rendezvous). Hence each start of the group agrees on keys of its own.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

from calibrant.errors import ModelError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

LAUNCH = "CALIBRANT_LAUNCH"
WAIT_SECONDS = 300.0  # until all workers of a group are there
_LOOK_SECONDS = 0.05
_KEY = "calibrant"
# What Gloo and NCCL say of a peer that is gone (torch 2.15).
_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")


def launch_name() -> str | None:
    """What is the same for every start of the group: CALIBRANT_LAUNCH, which whoever starts a job again may set, or
    else what one call of torchrun is called; None without both."""
    given = os.environ.get(LAUNCH)
    if given:
        return given
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if name in (None, "none"):  # its default under the static rendezvous
        return None if name is None else f"{socket.gethostname()}:{os.getppid()}"
    return name


def start_words() -> list[str]:
    """What a command line like that of this process begins with. Of several machines the rest is said by "..."."""
    world, here = (os.environ.get(name, "1") for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if world == "1":
        return ["calibrant"]
    return ["torchrun", *(["--nproc-per-node", here] if here == world else ["..."]), "-m", "calibrant"]


def own_store(rank: int, world: int) -> Store | None:
    """A part of the agent's store that no earlier start of the group has written into; None where there is no agent."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    from torch._C._distributed_c10d import PrefixStore, TCPStore  # torch.distributed exports them to no type checker

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, world, is_master=False, timeout=timedelta(seconds=WAIT_SECONDS))
    return PrefixStore(f"{_KEY}/{meeting(store, rank, world)}", store)


def raise_lost(error: RuntimeError, rank: int) -> None:
    """One line for the processes that a lost one leaves behind: they have nothing to add. Both Gloo and NCCL say it in
    words only, and NCCL's watchdog may end the process before."""
    if any(words in str(error) for words in _LOST):
        raise ModelError(
            "another process of the group has ended",
            where=f"process {rank}",
            fix="its own line says why, if it could; torchrun starts the group again as often as --max-restarts says",
        ) from None


def meeting(store: Store, rank: int, world: int, *, seconds: float = WAIT_SECONDS) -> str:
    """A name that this start of the group alone has, the same on all ranks.

    The first rank proposes one, the others answer with a name each, and it confirms by listing them. Whoever does not
    find himself in the list has read what the dead left, and looks again. The agents' count of restarts would not do:
    on several machines they count differently.
    """
    me = uuid.uuid4().hex
    if rank == 0:
        store.set(f"{_KEY}/proposed", me)
        others = [store.get(f"{_KEY}/{me}/{r}").decode() for r in range(1, world)]
        store.set(f"{_KEY}/{me}/all", " ".join([me, *others]))
        return me
    end = time.monotonic() + seconds
    answered = ""
    while time.monotonic() < end:
        if store.check([f"{_KEY}/proposed"]):
            proposed = store.get(f"{_KEY}/proposed").decode()
            if proposed != answered:
                store.set(f"{_KEY}/{proposed}/{rank}", me)
                answered = proposed
            confirmed = f"{_KEY}/{proposed}/all"
            if store.check([confirmed]) and me in store.get(confirmed).decode().split():
                return proposed
        time.sleep(_LOOK_SECONDS)
    raise ModelError(f"the first of {world} processes was not there after {seconds:g} s", where=f"process {rank}")
