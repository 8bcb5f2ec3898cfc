"""The jobs that strategies are compared on, with the figures that their authors published.

All figures of Oobleck, Bamboo and Varuna are those of the simulator in Oobleck's artifact (SOSP'23; 30
single-GPU nodes down to 15): throughput in samples/s by number of nodes, pauses, checkpoints. Between the
numbers of nodes given we interpolate linearly; above 30 and below the fewest given, throughput is
proportional to the nodes, which favours them.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import InputError

BYTES_PER_PARAMETER = 16
"""Mixed precision with Adam: weights 2, gradients 2, master weights, momentum and variance 4 each."""


class Profile(msgspec.Struct, frozen=True):
    """Throughput of a system by the number of nodes."""

    points: tuple[tuple[int, float], ...]
    """Nodes and samples/s, by rising number of nodes."""
    fewest: int
    """With fewer nodes than this it does not run."""

    def at(self, nodes: int) -> float:
        """Samples/s with so many nodes."""
        if nodes < self.fewest:
            return 0.0
        first, last = self.points[0], self.points[-1]
        if not first[0] < nodes < last[0]:
            nearest = first if nodes <= first[0] else last
            return nearest[1] * nodes / nearest[0]
        right = next(index for index, (count, _) in enumerate(self.points) if count >= nodes)
        (n0, y0), (n1, y1) = self.points[right - 1], self.points[right]
        return y0 + (y1 - y0) * (nodes - n0) / (n1 - n0)


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model, how it is laid out on 32 workers, and what the compared systems make of it."""

    name: str
    title: str
    parameters: float
    pp: int
    dp: int
    samples_per_step: int
    oobleck: Profile
    oobleck_pause_s: float
    varuna: Profile
    restart_s: float
    """Varuna's restart, with the checkpoint that is part of it."""
    checkpoint_s: float
    bamboo: Profile | None = None
    """None: out of memory."""
    bamboo_rebalance_s: float = 0.0

    @property
    def workers(self) -> int:
        """How many the job has when nobody is dead."""
        return self.pp * self.dp

    @property
    def throughput(self) -> float:
        """Samples/s of 1F1B without faults: what the best of the other systems has with as many nodes.

        This one number ties our schedules to their profiles, so each keeps the overhead that it has without
        any failure.
        """
        profiles = [self.oobleck, self.varuna, *([self.bamboo] if self.bamboo else [])]
        return max(profile.at(self.workers) for profile in profiles)

    @property
    def stage_bytes(self) -> float:
        """What a newcomer, or a worker that changes its role, has to copy."""
        return BYTES_PER_PARAMETER * self.parameters / self.pp

    @property
    def microbatch_choices(self) -> tuple[int, int]:
        """A number of micro-batches at which one death per stage fits into the bubbles, and one at which not.

        It fits up to (pp - 1)(dp - 1): the largest power of two below that, and four times as many.
        """
        small = 1 << ((self.pp - 1) * (self.dp - 1)).bit_length() - 1
        return (small, 4 * small)


def find_model(name: str) -> Model:
    """Return the model of this name."""
    for model in MODELS:
        if model.name == name:
            return model
    raise InputError(f"there is no model {name!r}, expected one of {', '.join(m.name for m in MODELS)}")


def _even(*values: float, fewest: int) -> Profile:
    """Values at 30, 28, … 16 nodes."""
    return Profile(tuple(zip(range(16, 31, 2), reversed(values), strict=True)), fewest)


def _each(*values: float, fewest: int) -> Profile:
    """Values at 30, 29, … 15 nodes."""
    return Profile(tuple(zip(range(15, 31), reversed(values), strict=True)), fewest)


def _bamboo(five: float, four: float, three: float, two: float) -> Profile:
    """Values with five pipelines of six nodes, with four, three, two."""
    plateaus = ((12, two), (17, two), (18, three), (23, three), (24, four), (29, four), (30, five))
    return Profile(plateaus, fewest=6)


BERT_LARGE = Model(
    name="bert-large",
    title="BERT-large",
    parameters=340e6,
    pp=2,
    dp=16,
    samples_per_step=8192,
    oobleck=_even(368, 328, 329, 304, 286, 262, 228, 215, fewest=2),
    oobleck_pause_s=2.0,
    varuna=_each(
        *(343.13, 331.70, 329.58, 326.54, 306.04, 298.38, 290.04, 280.07),
        *(267.90, 255.72, 243.54, 232.95, 222.37, 211.78, 202.57, 193.36),
        fewest=2,
    ),
    restart_s=76.0,
    checkpoint_s=15.8,
    bamboo=_bamboo(119, 99.4, 74.5, 49.7),
    bamboo_rebalance_s=76.0,
)

GPT2 = Model(
    name="gpt2",
    title="GPT-2",
    parameters=345e6,
    pp=2,
    dp=16,
    samples_per_step=1024,
    oobleck=_even(110, 98.8, 99.5, 90.5, 83.3, 76.7, 66.8, 62.7, fewest=2),
    oobleck_pause_s=2.0,
    varuna=_each(
        *(125.79, 117.63, 117.63, 106.83, 110.92, 102.08, 102.08, 96.65),
        *(96.65, 85.83, 88.31, 78.31, 78.31, 70.46, 70.46, 64.30),
        fewest=2,
    ),
    restart_s=83.0,
    checkpoint_s=11.5,
    bamboo=_bamboo(27.0, 22.5, 16.9, 11.3),
    bamboo_rebalance_s=80.0,
)

GPT3_MEDIUM = Model(
    name="gpt3-medium",
    title="GPT-3 Medium",
    parameters=350e6,
    pp=2,
    dp=16,
    samples_per_step=819,
    oobleck=_even(38.5, 35.9, 33.3, 30.2, 27.8, 25.7, 23.0, 20.9, fewest=2),
    oobleck_pause_s=3.0,
    varuna=_each(
        *(42.00, 38.89, 38.89, 35.85, 33.43, 33.43, 33.43, 28.26),
        *(28.26, 28.26, 28.23, 25.26, 25.26, 22.89, 22.89, 20.91),
        fewest=2,
    ),
    restart_s=78.7,
    checkpoint_s=11.2,
)

GPT3_2_7B = Model(
    name="gpt3-2.7b",
    title="GPT-3 2.7B",
    parameters=2.7e9,
    pp=4,
    dp=8,
    samples_per_step=512,
    oobleck=_even(9.21, 8.60, 7.99, 7.51, 7.05, 6.80, 6.12, 5.63, fewest=4),
    oobleck_pause_s=6.0,
    varuna=_each(
        *(9.768, 9.425, 9.425, 9.100, 9.100, 9.100, 9.100, 7.470),
        *(7.470, 7.470, 7.470, 6.425, 6.425, 6.425, 6.425, 4.864),
        fewest=4,
    ),
    restart_s=515.0,
    checkpoint_s=50.0,
)

GPT3_6_7B = Model(
    name="gpt3-6.7b",
    title="GPT-3 6.7B",
    parameters=6.7e9,
    pp=8,
    dp=4,
    samples_per_step=1024,
    oobleck=_even(5.51, 5.14, 4.77, 4.33, 3.95, 4.15, 3.59, 3.53, fewest=16),  # The artifact has 0 at 15.
    oobleck_pause_s=10.0,
    varuna=_each(
        *(5.241, 5.241, 5.241, 5.097, 5.097, 5.097, 5.097, 4.503),
        *(4.503, 4.503, 4.503, 3.954, 3.954, 3.954, 3.954, 3.016),
        fewest=8,
    ),
    restart_s=701.0,
    checkpoint_s=120.0,
)

MODELS = (GPT3_MEDIUM, GPT3_2_7B, GPT3_6_7B, BERT_LARGE, GPT2)
