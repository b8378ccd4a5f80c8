"""The state on show, made from the records alone: the same for a live session and for a recorded one."""
