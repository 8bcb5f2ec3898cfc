"""What somebody on call would do next, for each cause, and where all ranks share it."""

from __future__ import annotations

from holdfast.findings import Cause, Suspect
from holdfast.serve.casewords import place_of

NEXT_STEPS: dict[Cause, str] = {
    "compute": (
        "Look at the device's clocks, temperature, power limit and ECC counters, and compare them with a "
        "healthy node. If they differ, drain the node and let a spare take its place; if they do not, "
        "look at what this rank computes that the others do not."
    ),
    "cpu_contention": (
        "Find who else runs on these cores (top, pidstat, the batch system's list of jobs on the host). "
        "Move or stop it, pin the ranks to cores of their own, and check CPU limits of the container."
    ),
    "link": (
        "Read the error and retransmission counters of the network interface and of its switch port. Swap "
        "cable, transceiver or interface, or drain the node; run a bandwidth test between this rank and a "
        "neighbour to make sure first."
    ),
    "data_loading": (
        "Give the loader more workers and let them prefetch (num_workers, prefetch_factor, "
        "persistent_workers). Move decoding and tokenising out of the training loop; time one batch "
        "without training to see what it takes."
    ),
    "storage": (
        "Look at the mount and the read path of these ranks: latency and throughput of the file system, "
        "other readers of it, a cache that is cold. Prefetch in workers, read larger pieces, or copy the "
        "data to a local disk first."
    ),
    "garbage_collection": (
        "Call gc.freeze() after setup, switch automatic collection off, and collect every N steps on all "
        "ranks at once: then nobody waits for another one's collection."
    ),
    "host_memory": (
        "Check the host for swapping, reclaim and a wrong NUMA node (vmstat, numastat). Pin the buffers "
        "that are copied, reuse them instead of allocating anew, and bind the rank to the memory near its "
        "device."
    ),
    "input_imbalance": (
        "Give all ranks the same amount of work: sort or bucket samples by length, pack them, and balance "
        "by tokens instead of by samples."
    ),
    "stage_imbalance": (
        "Move layers from this stage to others, counting the embedding and the output layer as layers "
        "too; a plan with the measured costs of the stages says how."
    ),
    "hang": (
        "Take the stacks of these ranks (py-spy dump) before anything is restarted. See which collective "
        "they are not in that all others are in."
    ),
    "death": (
        "Read the last lines of this rank's log and the kernel's (out of memory, Xid). Restart without "
        "the node if it was the hardware."
    ),
    "unknown": (
        "Profile once more to see whether it stays. Compare the stacks of these ranks with those of "
        "others, and look at what their hosts have in common."
    ),
}
COMMON = "All ranks have it: that speaks for the code or a service that they share, not for one machine."
IN_PYTHON = (
    "It is Python that takes the time, not the device: read what this function does, and compute it once, "
    "in larger pieces, or in another thread than the one that trains."
)


def next_step(suspect: Suspect, ranks: int) -> str:
    """Return what to do about a suspect in a job of so many ranks."""
    is_python = suspect.cause == "compute" and place_of(suspect.function or "") is not None
    step = IN_PYTHON if is_python else NEXT_STEPS[suspect.cause]
    return f"{COMMON} {step}" if len(suspect.ranks) == ranks > 1 else step
