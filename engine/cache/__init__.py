"""The live KV cache: what each kind of cache holds, how it moves over the token tree, and the KV kept of branches."""
