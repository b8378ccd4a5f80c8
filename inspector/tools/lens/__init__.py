"""The logit lens: what each layer would predict."""
