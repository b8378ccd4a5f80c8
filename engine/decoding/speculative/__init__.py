"""Speculative decoding: a draft proposes tokens, one forward of the model verifies them, and those that hold stay.

The draw of a token is a function of (seed, position, re-roll count) and of the model's distribution there. A drafted
token is accepted where it is the one that this draw takes, so the text is that of plain steps, whatever the draft.
"""
