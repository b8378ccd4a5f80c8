"""The program in a browser: each visitor gets a process of their own, on a terminal that their page draws."""
