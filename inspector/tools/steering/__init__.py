"""Steering: a direction added to the residual stream, beside random directions of the same length."""
