"""A model over several processes: rank 0 decides, the others execute numbered operations on their shards."""
