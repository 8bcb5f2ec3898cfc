"""Numbers into findings: who stands still, what has changed; pure."""
