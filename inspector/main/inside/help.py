"""What the help of every view inside says of the keys that they share."""

from __future__ import annotations

WALK = ("`←` `→` `home` `end`", "Look at another token.")
SHARED = (
    ("`tab` `shift+tab`", "Show the next view of the same token, or the one before."),
    ("`T`", "Switch between the dark and the light theme."),
    ("`esc` `q`", "Go back; what is computed stops."),
)
"""The last rows."""
