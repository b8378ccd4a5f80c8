"""One module for each kind of result: pure functions from its records to blocks. None imports Textual."""
