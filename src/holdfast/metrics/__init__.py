"""What is shown to Prometheus of runs, computed from what is known of them. Pure."""
