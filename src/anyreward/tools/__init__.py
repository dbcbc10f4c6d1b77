"""Tools of the command line: demo, benchmarks, doctor, training with several seeds, and display of answers."""
