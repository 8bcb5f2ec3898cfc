"""How many GPUs an attempt had, from Slurm's ways to say so."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

_MOST_ALIKE = 0.25
"""Of the texts may be different ones, for it to be worth while to look for the same."""
_IS_COUNT = pl.col("found").is_between(0, 2**32 - 1)


def of_tres(name: str) -> pl.Expr:
    """Return the GPUs of ``cpu=8,gres/gpu=8``."""
    return pl.col(name).str.extract(r"gres/gpu=([0-9]+)", 1).cast(pl.Int64, strict=False)


def of_typed_tres(name: str) -> pl.Expr:
    """Return the GPUs of ``cpu=8,gres/gpu:a100=8``, where they are counted by type alone."""
    counts = pl.col(name).str.extract_all(r"gres/gpu:[^=,]*=[0-9]+")
    numbers = counts.list.eval(pl.element().str.extract(r"=([0-9]+)$", 1).cast(pl.Int64, strict=False))
    return pl.when(numbers.list.len() > 0).then(numbers.list.sum())


def of_gres(name: str) -> pl.Expr:
    """Return the GPUs of ``gpu:8``, ``gpu:a100:4(IDX:0-3)``."""
    number = pl.col(name).str.extract(r"(?:^|[,:/])gpu(?::[A-Za-z_][^:,(]*)?[:=]([0-9]+)", 1)
    return number.cast(pl.Int64, strict=False)


def per_node(name: str, gpus: pl.Expr, nodes: pl.Expr) -> pl.Expr:
    """Return GPUs of a whole job where Slurm tells those of a node: ``PER_NODE:gpu:8``."""
    is_per_node = pl.col(name).str.starts_with("PER_NODE:")
    return pl.when(is_per_node).then(gpus * nodes).otherwise(gpus)


def add(table: pl.DataFrame) -> pl.DataFrame:
    """Fill ``gpus_read`` by what a row got, and else by what it asked for; null: nothing is told."""
    gpus = table["gpus_read"].clone()
    for tres, gres in (("tres", "gres"), ("tres_asked", "gres_asked")):
        for name, way in ((tres, of_tres), (tres, of_typed_tres), (gres, of_gres)):
            places = (gpus.is_null() & table[name].is_not_null()).arg_true()
            if places.is_empty():
                continue
            some = table.select(pl.col(name), "nodes_read")
            some = some if len(places) == table.height else some[places]
            some = some.with_columns(found=_each_once(some[name], way))
            if name == gres:
                some = some.with_columns(found=per_node(name, pl.col("found"), pl.col("nodes_read")))
            found = some.select(pl.when(_IS_COUNT).then("found")).to_series()
            gpus = found if len(places) == len(gpus) else gpus.scatter(places, found)
    return table.with_columns(gpus.alias("gpus_read"))


def _each_once(cells: pl.Series, way: Callable[[str], pl.Expr]) -> pl.Series:
    """Read each text once: patterns are slow, and a cluster's jobs ask for few different things."""
    texts = cells.unique()
    if len(texts) > _MOST_ALIKE * len(cells):
        return cells.to_frame().select(way(cells.name)).to_series()
    found = texts.to_frame().select(way(cells.name)).to_series()
    return cells.replace_strict(texts, found, return_dtype=pl.Int64)
