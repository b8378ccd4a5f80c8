"""The costs of one step, part by part."""
