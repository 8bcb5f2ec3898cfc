"""What is measured by ``benchmarks/overhead.py``, and how."""
