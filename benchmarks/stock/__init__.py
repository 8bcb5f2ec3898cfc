"""The same training by ``holdfast.Pipeline`` and by torch's own pipeline schedules, on equal terms.

``workload`` is what both train; ``ours`` and ``theirs`` train it; ``duel`` is the job in which they take
turns; ``overhead`` starts it and compares.
"""
