"""A model over several processes: what each holds, and where the time of a step goes."""
