"""Small files of the user: presets, breakpoints, the log of crashes."""
