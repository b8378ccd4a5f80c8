"""Inside the model: what its layers compute for a token, looked at and changed on copies of the session's cache.

`patches` sets attributes for a while; `taps` records a forward through them; `capture` runs one token of the tree again
under taps. Each view (attention, lens, attribution, interventions) is a file that reads captures and makes records.
"""
