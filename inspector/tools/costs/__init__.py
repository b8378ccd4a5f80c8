"""What one step costs, taken apart."""
