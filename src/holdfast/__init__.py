"""Holdfast keeps large PyTorch training runs fast and alive."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Loss", "Pipeline", "PipelineSettings", "Shares", "__version__", "watch"]

if TYPE_CHECKING:
    from holdfast.job.attach import watch
    from holdfast.job.options import Loss, PipelineSettings
    from holdfast.job.pipeline import Pipeline
    from holdfast.job.shares import Shares


def __getattr__(name: str) -> Any:
    # Lazy, so that `import holdfast` costs nothing and needs no torch.
    if name == "watch":
        from holdfast.job.attach import watch

        return watch
    if name == "Shares":
        from holdfast.job.shares import Shares

        return Shares
    if name in ("Loss", "Pipeline", "PipelineSettings"):
        from holdfast.job import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
