"""Inside the model: activations of its layers for tokens of the tree, read and changed on copies of the KV cache.

`engine.model.layers` patches modules; `taps` records a forward pass through such patches; `view` runs tokens of the
tree again under taps, checks the result and refuses it. The other modules compute the views: a function for each
command, `(session, command, stopped) -> Iterator[Record]`, found by the worker's table.
"""
