"""Processes that the engine starts: with the modules of this one, and with limits of time and memory."""
