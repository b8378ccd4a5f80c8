"""One model, one token tree and one live KV cache: prefill, step, choose, move, verify, stop, restore."""
