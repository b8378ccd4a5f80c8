"""Small user files: presets, breakpoints, keys, preferences, directions, the crash log."""
