"""Lessons on the screen: the list, the card, the presenter."""
