"""Constrained decoding: which tokens a grammar allows after each token of the tree. llguidance computes the masks.

A grammar is a setting. Its state after a node is a function of the grammar and of the path, so that a fork, a move, a
beam and a replay have the right one at once; `states.GrammarStates` keeps the matchers of the most recently used nodes.
"""
