"""What ``benchmarks/serve.py`` measures the control room with."""
