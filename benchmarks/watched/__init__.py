"""Jobs that are watched while something is wrong with one of their ranks; see ``benchmarks/naming.py``."""
