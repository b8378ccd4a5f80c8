"""Inside the model: what its layers compute for a token, looked at and changed on copies of the session's cache.

`engine.model.layers` sets attributes for a while; `taps` records a forward through them; `capture` runs tokens of the
tree again under taps. Each view (attention, lens, attribution, interventions) is a file that makes records of captures.
"""
