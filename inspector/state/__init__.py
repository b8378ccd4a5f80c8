"""What is on show, made from the records alone: pure values, the same for a live session and for a recorded one."""
