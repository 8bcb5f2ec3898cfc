"""Inside the training process: boot, hooks, the ring. Never raises into the user's loop, never blocks it."""
