"""The parts of ``benchmarks/mitigate.py``."""
