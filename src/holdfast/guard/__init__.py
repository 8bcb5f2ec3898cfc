"""Beside the training process: the launcher, the guard that watches, and the event log."""
