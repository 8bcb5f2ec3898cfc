"""The variable that tells a script how to hurt itself; apart, so that reading it needs no torch."""

SABOTAGE_ENV = "SABOTAGE"
