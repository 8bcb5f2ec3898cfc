"""Parts of the benchmarks of workers that come back."""
