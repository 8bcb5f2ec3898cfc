"""People looking on: pictures and pages of what was planned, simulated or seen."""
