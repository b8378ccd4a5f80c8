"""Scripts that recorded what `inspector.demo` and the training tool come with."""
