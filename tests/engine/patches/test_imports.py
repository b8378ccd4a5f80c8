"""mlx_lm without transformers, until something needs it; each in a process of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine import pocket
from tests.system import python

LIGHT = "from engine.patches.imports import import_mlx_lm; import_mlx_lm()\nimport sys\n"
HEAVY = (
    "{'transformers', 'huggingface_hub', 'torch', 'numpy.random', 'importlib.metadata'} & sys.modules.keys()"
)


def ran(code: str, *arguments: str) -> str:
    """What a program prints."""
    done = python(code, *arguments, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_bundled_model_is_loaded_and_stepped_without_transformers() -> None:
    code = LIGHT + (
        "from engine.model.load import load; from engine.session.session import Session\n"
        "from engine.settings import LoadSettings, Settings\n"
        "session = Session(load(LoadSettings()), Settings())\n"
        "list(session.prefill('', session.tokens.encode('Once upon a time')))\n"
        f"session.step(); print(sorted({HEAVY}))"
    )
    assert ran(code) == "[]"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The bundled model's tokenizer, with a class that only transformers knows."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(pocket.directory() / name, tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["tokenizer_class"] = "GPT2TokenizerFast"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


CALLS = {"ours": "from engine.patches.imports import complete; complete()\n", "mlx_lm's own": ""}


@pytest.mark.slow
@pytest.mark.parametrize("call", list(CALLS))
def test_a_tokenizer_that_needs_it_is_loaded_as_ever(directory: Path, call: str) -> None:
    code = LIGHT + CALLS[call] + (
        "from pathlib import Path\n"
        "from mlx_lm import generate, tokenizer_utils, utils\n"
        "import transformers\n"
        "wrapper = utils.load_tokenizer(Path(sys.argv[1]), eos_token_ids=[2])\n"
        "assert isinstance(wrapper, tokenizer_utils.TokenizerWrapper)\n"
        "assert generate.__globals__['TokenizerWrapper'] is tokenizer_utils.TokenizerWrapper\n"
        "assert tokenizer_utils.AutoTokenizer is transformers.AutoTokenizer\n"
        "assert issubclass(tokenizer_utils.NewlineTokenizer, transformers.PreTrainedTokenizerFast)\n"
        "assert generate.__globals__['PreTrainedTokenizer'] is transformers.PreTrainedTokenizer\n"
        "print(wrapper.encode('Once upon a time'), 'im_start' in wrapper.apply_chat_template("
        "[{'role': 'user', 'content': 'x'}], tokenize=False))"
    )  # fmt: skip
    plain = "from engine.model.tokens import plain_tokenizer as p; from engine import pocket\n" + (
        "print(p(pocket.directory(), {'model_type': 'llama'})._tokenizer.encode('Once upon a time'), True)"
    )
    assert ran(code, str(directory)) == ran(plain)


@pytest.mark.slow
def test_nothing_stands_in_its_place_afterwards() -> None:
    code = LIGHT + (
        "import transformers, huggingface_hub\n"
        "print(transformers.__file__ is not None, callable(huggingface_hub.HfApi))\n"
        "print(transformers.AutoTokenizer.__module__)"
    )
    assert ran(code) == "True True\ntransformers.models.auto.tokenization_auto"


@pytest.mark.slow
def test_what_was_imported_before_is_used() -> None:
    code = "import transformers\n" + LIGHT + (
        "from mlx_lm import tokenizer_utils; print(tokenizer_utils.AutoTokenizer is transformers.AutoTokenizer)"
    )  # fmt: skip
    assert ran(code) == "True"


def test_it_is_switched_off_with_the_patches() -> None:
    code = "import os; os.environ['INSPECTOR_PATCHES'] = 'none'\n" + LIGHT + f"print(sorted({HEAVY}))"
    assert "'transformers'" in ran(code)
