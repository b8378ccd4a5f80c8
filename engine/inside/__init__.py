"""Inside the model: the activations of its layers, read and changed on copies of the KV cache.

`engine.model.layers` patches modules; `taps` records a forward pass through such patches; `view` runs tokens of the
tree again under taps and checks the result. The other modules compute the views, with one function per command,
`(session, command, stopped) -> Iterator[Record]`, that the worker's table lists.
"""
