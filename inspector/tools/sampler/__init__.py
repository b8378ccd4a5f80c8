"""Why a token was chosen, and what other settings would have picked."""
