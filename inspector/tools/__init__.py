"""One folder for each thing that the user opens; no tool imports another."""
