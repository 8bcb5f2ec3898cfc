"""Schedules as data: how a pipeline's work is laid out around workers that are slow or dead.

A :class:`Problem` says what there is to do and who is how fast; a :class:`Schedule` who does what in which
order; a :class:`Plan` is a schedule with its times, its lower bound and what it costs in memory.
"""
