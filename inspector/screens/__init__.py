"""The screens: the main one around the panels, and the dialogs that come up over it."""
