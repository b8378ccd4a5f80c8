"""A lesson as a web page that asks, waits and reveals: from its file and its recording, without a model."""

from inspector.tools.export.lesson.page import page

__all__ = ["page"]
