"""Suspects and prices into decisions: what is lost, what acting costs, when it pays; pure.

A :class:`Condition` says what is wrong with a job, an :class:`Arrangement` what is done about it, a
:class:`Model` how slow the one makes the other. The :class:`Mitigator` folds what is seen into decisions.
"""
