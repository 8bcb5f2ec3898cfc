"""find_layout: who does the same as whom, from the names of groups and from who calls whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from holdfast.diagnose.layout import Layout, find_layout
from holdfast.telemetry import Channel

Groups = Mapping[str, Sequence[Sequence[int]]]


def channels(
    groups: Groups, pairs: Sequence[tuple[int, int]] = (), ranks: int = 0
) -> dict[int, list[Channel]]:
    """Return what each rank tells of its groups, and of the peers that it sends to and receives from."""
    found: dict[int, list[Channel]] = {rank: [] for rank in range(ranks)}
    for name, sets in groups.items():
        for members in sets:
            for rank in members:
                mine = found.setdefault(rank, [])
                mine.append(Channel(number=len(mine) + 1, kind="group", ranks=list(members), name=name))
    for one, other in pairs:
        to = Channel(number=len(found.setdefault(one, [])) + 1, kind="to", ranks=[other])
        found[one].append(to)
        back = Channel(number=len(found.setdefault(other, [])) + 1, kind="from", ranks=[one])
        found[other].append(back)
    return found


def chain(*ranks: int) -> list[tuple[int, int]]:
    """Return neighbours along a pipeline, in both directions."""
    there = list(pairwise(ranks))
    return there + [(other, one) for one, other in there]


def roles(layout: Layout) -> list[int]:
    """Return the roles in the order of ranks."""
    return [layout.roles[rank] for rank in sorted(layout.roles)]


def test_a_device_mesh_names_its_dimensions() -> None:
    """``mesh_dp`` and ``mesh_pp`` of a mesh of two stages by two pipelines."""
    mesh: Groups = {"mesh_dp": [[0, 1], [2, 3]], "mesh_pp": [[0, 2], [1, 3]], "mesh_default": [[0, 1, 2, 3]]}
    layout = find_layout(channels(mesh))
    assert layout.kind == "named"
    assert roles(layout) == [0, 0, 1, 1]
    assert layout.peers(2) == [3]


def test_tensor_parallel_ranks_do_the_same() -> None:
    """Two stages by two pipelines by two parts: all four of a stage are alike."""
    mesh: Groups = {
        "mesh_pp": [[0, 4], [1, 5], [2, 6], [3, 7]],
        "mesh_dp": [[0, 2], [1, 3], [4, 6], [5, 7]],
        "mesh_tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
    }
    assert roles(find_layout(channels(mesh))) == [0, 0, 0, 0, 1, 1, 1, 1]
    without = {name: sets for name, sets in mesh.items() if name != "mesh_pp"}
    by_messages = find_layout(channels(without, chain(0, 4) + chain(1, 5) + chain(2, 6) + chain(3, 7)))
    assert roles(by_messages) == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "mesh",
    [
        {"mesh_dp": [[0, 2], [1, 3]], "mesh_tp": [[0, 1], [2, 3]]},
        {"mesh_tp": [[0, 1], [2, 3]]},
        {"mesh_replicate": [[0, 2], [1, 3]], "mesh_shard": [[0, 1], [2, 3]]},
        {"mesh_dp_replicate": [[0, 2], [1, 3]], "mesh_dp_shard_cp": [[0, 1], [2, 3]]},
        {"mesh_fsdp": [[0, 1, 2, 3]]},
        {"DATA_PARALLEL_GROUP": [[0, 2], [1, 3]], "TENSOR_MODEL_PARALLEL_GROUP": [[0, 1], [2, 3]]},
    ],
)
def test_without_a_pipeline_all_ranks_do_the_same(mesh: Groups) -> None:
    """However data, parameters and layers are split among them."""
    layout = find_layout(channels(mesh))
    assert layout.kind == "named"
    assert roles(layout) == [0, 0, 0, 0]


MEGATRON: Groups = {
    "default_pg": [list(range(8))],
    "DATA_PARALLEL_GROUP_WITH_CP": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "DATA_PARALLEL_GROUP": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "CONTEXT_PARALLEL_GROUP": [[rank] for rank in range(8)],
    "MODEL_PARALLEL_GROUP": [[0, 1, 4, 5], [2, 3, 6, 7]],
    "TENSOR_MODEL_PARALLEL_GROUP": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "PIPELINE_MODEL_PARALLEL_GROUP": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "EMBEDDING_GROUP": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "POSITION_EMBEDDING_GROUP": [[rank] for rank in range(4)],
    "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "EXPERT_MODEL_PARALLEL_GROUP": [[rank] for rank in range(8)],
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": [[0, 1, 4, 5], [2, 3, 6, 7]],
    "EXPERT_DATA_PARALLEL_GROUP": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": [list(range(8))],
}
"""What Megatron-LM calls its groups, with two parts by two pipelines by two stages."""


@pytest.mark.parametrize("unseen", [(), ("PIPELINE_MODEL_PARALLEL_GROUP",), ("DATA_PARALLEL_GROUP",)])
def test_megatron_describes_its_groups(unseen: tuple[str, ...]) -> None:
    """The stages are found also where a group was never called, and those across stages mix up nothing."""
    groups = {name: sets for name, sets in MEGATRON.items() if name not in unseen}
    pairs = chain(0, 4) + chain(1, 5) + chain(2, 6) + chain(3, 7)
    layout = find_layout(channels(groups, pairs))
    assert layout.kind == "named"
    assert roles(layout) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_chain_of_messages_is_a_pipeline() -> None:
    """GPipe over four ranks: each is a stage of its own."""
    layout = find_layout(channels({"default_pg": [[0, 1, 2, 3]]}, chain(0, 1, 2, 3)))
    assert layout.kind == "chain"
    assert roles(layout) == [0, 1, 2, 3]
    assert layout.peers(1) == []


@pytest.mark.parametrize("pipelines", [[(0, 1, 2), (3, 4, 5)], [(0, 2, 4), (1, 3, 5)]])
def test_two_chains_are_two_pipelines(pipelines: list[tuple[int, ...]]) -> None:
    """Ranks at the same place of two chains do the same."""
    layout = find_layout(channels({}, [pair for ranks in pipelines for pair in chain(*ranks)]))
    for one, other in zip(*pipelines, strict=True):
        assert layout.peers(one) == [other]
    assert [layout.roles[rank] for rank in pipelines[0]] == [0, 1, 2]


def test_groups_of_one_tell_nothing() -> None:
    """A mesh has a dimension of one where there is one pipeline only; the chains say more."""
    alone = {"mesh_dp": [[rank] for rank in range(6)]}
    layout = find_layout(channels(alone, chain(0, 1, 2) + chain(3, 4, 5)))
    assert layout.kind == "chain"
    assert layout.peers(1) == [4]


@pytest.mark.parametrize(
    "pairs",
    [
        chain(0, 1, 2, 3, 0),
        chain(0, 1, 2),
        [(one, other) for one in range(4) for other in range(4) if one != other],
    ],
    ids=["ring", "one apart", "all to all"],
)
def test_what_is_no_chain_is_unknown(pairs: list[tuple[int, int]]) -> None:
    """Rings, as ring attention has them, and all kinds of others tell nothing about stages."""
    layout = find_layout(channels({}, pairs, ranks=4))
    assert layout == Layout(kind="unknown", roles=dict.fromkeys(range(4), 0))


@pytest.mark.parametrize(
    "name", ["", "undefined", "default_pg", "0", "adept", "support", "wrapper", "step_pg"]
)
def test_names_that_mean_nothing_are_not_read(name: str) -> None:
    """A word that only contains ``dp`` or ``pp`` is none of theirs."""
    assert find_layout(channels({name: [[0, 1], [2, 3]]})).kind == "unknown"


def test_no_channels_are_an_unknown_layout() -> None:
    """Before anybody has communicated there is nobody."""
    assert find_layout({}) == Layout(kind="unknown", roles={})


def test_names_that_leave_ranks_out_are_not_believed() -> None:
    """One pipeline group of two ranks says nothing about the other two."""
    assert find_layout(channels({"mesh_pp": [[0, 1]]}, ranks=4)).kind == "unknown"


def test_messages_to_oneself_and_to_strangers_are_ignored() -> None:
    """Peers that tell nothing of themselves are not ranks of this job, as far as is known."""
    found = channels({}, [*chain(0, 1, 2), (1, 1)])
    found[0].append(Channel(number=9, kind="to", ranks=[77]))
    found[0].append(Channel(number=10, kind="rest", ranks=[]))
    assert roles(find_layout(found)) == [0, 1, 2]
