"""Fast gradient steps: parameters in flat memory, and compiled updates."""
