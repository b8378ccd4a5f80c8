"""What things cost: the race, the fenced profile and the roofline, without changing a session."""
