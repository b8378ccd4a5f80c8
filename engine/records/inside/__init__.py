"""What is read inside the model: attention, lens, contributions, modules, and what interventions change."""
