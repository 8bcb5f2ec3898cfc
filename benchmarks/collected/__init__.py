"""What the benchmark of collecting is made of."""
