"""Ways of decoding besides single steps and runs: beams, look-ahead, speculation, batches, many draws."""
