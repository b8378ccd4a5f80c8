"""Measurements that leave the session unchanged: the race, the fenced profile, the roofline, quantized KV caches."""
