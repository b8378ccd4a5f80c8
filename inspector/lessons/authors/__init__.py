"""What authors need: rules and checks, a lesson to begin with, the reference of their page."""
