"""What other parts of the control room add to the server: pages, metrics, messages."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.routing import BaseRoute

from holdfast.serve.metrics.collector import ServerMetrics, Sources
from holdfast.serve.metrics.route import metrics_route
from holdfast.serve.notify.notifier import Notifier
from holdfast.serve.web import views
from holdfast.serve.web.context import Context
from holdfast.serve.web.live import Heed


class Others(msgspec.Struct, frozen=True, kw_only=True):
    """Routes, who is told of changes, and what is to be called at the end."""

    routes: list[BaseRoute]
    heeders: list[Heed]
    ends: list[Callable[[], None]]


def find_others(context: Context) -> Others:
    """Return what there is for these settings."""
    settings = context.settings
    notifier = None
    if settings.webhook_url is not None:
        notifier = Notifier(context.store, settings.webhook_url, page=settings.url)
    metrics = ServerMetrics(
        Sources(
            store=context.store,
            views=context.live,
            counters=context.counters,
            limit_bytes=settings.keep_bytes,
            messages=notifier.counts if notifier is not None else dict,
        )
    )
    return Others(
        routes=[*views.routes(context), metrics_route(metrics)],
        heeders=[notifier.heed] if notifier is not None else [],
        ends=[notifier.close] if notifier is not None else [],
    )
