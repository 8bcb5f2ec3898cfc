"""What a server shows to Prometheus: its runs, and itself."""
