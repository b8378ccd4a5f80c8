"""What things cost: benchmarks, sweeps, the race, the fenced profile and the roofline, without changing a session."""
