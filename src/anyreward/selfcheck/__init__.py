"""`anyreward selfcheck`: faults of every kind, tried on this machine."""
