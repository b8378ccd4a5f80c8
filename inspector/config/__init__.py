"""Small files of the person's own: presets, breakpoints, the log of crashes."""
