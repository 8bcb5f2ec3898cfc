"""How many GPUs an attempt had, from Slurm's ways to say so."""

from __future__ import annotations

import polars as pl

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
    nodes = pl.col("nodes_read")
    gpus = table["gpus_read"].clone()
    for tres, gres in (("tres", "gres"), ("tres_asked", "gres_asked")):
        ways = (
            (tres, of_tres(tres)),
            (tres, of_typed_tres(tres)),
            (gres, per_node(gres, of_gres(gres), nodes)),
        )
        for name, way in ways:
            # Patterns are slow: only rows that still need one are looked at.
            places = (gpus.is_null() & table[name].is_not_null()).arg_true()
            if not places.is_empty():
                some = table.select(name, "nodes_read")[places].select(found=way)
                gpus.scatter(places, some.select(pl.when(_IS_COUNT).then("found"))["found"])
    return table.with_columns(gpus)
