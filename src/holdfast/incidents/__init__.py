"""What happened to a run, told from its event log: its workers, its incidents, its bill. Pure."""
