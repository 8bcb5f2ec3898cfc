"""Tells a chat room what happens to runs, by a webhook."""

from __future__ import annotations

from holdfast.serve.notify.notifier import Notifier as Notifier
from holdfast.serve.notify.posting import WEBHOOK_ENV as WEBHOOK_ENV
from holdfast.serve.notify.posting import read_webhook as read_webhook
