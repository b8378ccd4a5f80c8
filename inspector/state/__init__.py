"""What is shown, made from the records alone: pure values, the same for a live session and for a recorded one."""
