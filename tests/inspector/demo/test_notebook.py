"""The notebook of the repository runs as it is, and what it shows is what it shows when it is run.

    python -m tests.inspector.demo.test_notebook

runs it and writes what came of it into the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path("inspector/demo/notebook.ipynb").resolve()
VARYING = re.compile(r", \d+ a second")
"""A figure of the machine."""


def executed(folder: Path) -> Any:
    """The notebook after a run in a process of its own, in a directory of its own."""
    notebook = nbformat.read(NOTEBOOK, 4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was run
    return notebook


def shown(notebook: Any) -> list[list[tuple[str, ...]]]:
    """For each cell of code the kinds of what it shows."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    return [[(each.output_type, *sorted(each.get("data", ()))) for each in cell.outputs] for cell in cells]


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = tmp_path / "somewhere"
    folder.mkdir()
    made = executed(folder)
    assert shown(made) == shown(nbformat.read(NOTEBOOK, 4))
    assert not any(each.output_type == "error" for cell in made.cells for each in cell.get("outputs", ()))
    assert (folder / "story.html").stat().st_size > 10_000


def test_what_the_notebook_shows_is_small_and_needs_nothing() -> None:
    """It is read on a code host, which runs no script and loads nothing."""
    text = NOTEBOOK.read_text("utf-8")
    assert len(text) < 200_000
    for forbidden in ("<script", "http:", "src=", "/work", "/home", "/root", "/tmp"):
        assert forbidden not in text


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        run = executed(Path(directory))
    for each in run.cells:
        for output in each.get("outputs", ()):
            for kind, text in output.get("data", {}).items():
                output["data"][kind] = VARYING.sub("", text)
    nbformat.write(run, NOTEBOOK)
