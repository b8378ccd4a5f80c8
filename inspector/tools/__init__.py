"""One folder for each thing that a person opens; no tool imports another."""
