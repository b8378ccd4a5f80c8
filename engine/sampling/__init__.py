"""From a row of logits to a token: ordered stages, one draw, and ranks. numpy alone."""
