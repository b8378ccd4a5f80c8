"""Measurements that don't change the session: race, fenced profile, roofline, quantized KV caches."""
