"""Panels of plug-ins as tools."""
