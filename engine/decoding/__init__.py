"""Ways of running: back to back, with beams, looking ahead, and up to a breakpoint."""
