"""The parts of ``benchmarks/recovery.py``, one file each."""
