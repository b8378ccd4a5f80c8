"""What things cost: benchmarks, sweeps, the race, the fenced profile and the roofline, beside a session."""
