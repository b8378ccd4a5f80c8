"""What spares the toolkit styling, laying out and drawing the same thing again."""
