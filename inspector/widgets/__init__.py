"""Widgets that several panels and screens use."""
