"""Values of many ranks in, suspects out."""
