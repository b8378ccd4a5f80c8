"""What several panels and screens are drawn with."""
