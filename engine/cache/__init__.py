"""The live KV cache: the kinds of cache, moves over the token tree, and the KV saved for other branches."""
