"""What the command line offers beside learning and asking: demo, bench, doctor, several seeds, shown answers."""
