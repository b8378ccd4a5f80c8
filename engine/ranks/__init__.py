"""A model over several processes: all ranks execute the same commands, each on its part of the model."""
