"""Compiled kernels are not found again once anything that is compiled into them has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.env.kernels import code_cache
from tailrace.env.kernels import source_digest as kernel_sources
from tailrace.state.rows import arrange_kernels

KERNEL = "tailrace.a.loops"
FILES = {
    "__init__.py": "",
    "a/__init__.py": "",
    "a/loops.py": "from tailrace.a import helpers as h\nfrom tailrace.b.places import (\n    HASH,  # 0\n    P,\n)\n",
    "a/helpers.py": "import tailrace.a.deep\n",
    "a/deep.py": "ONE = 1\n",
    "b/__init__.py": "",
    "b/places.py": "HASH, P = 0, 1\n",
    "b/other.py": "from tailrace.a import loops\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """A package called as ours; gives what writes a file of it."""

    def forget() -> None:
        kernel_sources._source.cache_clear()
        kernel_sources._imports.cache_clear()

    def write(name: str, text: str) -> None:
        path = tmp_path / "tailrace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        forget()

    monkeypatch.setattr(kernel_sources, "_ROOT", tmp_path / "tailrace")
    for name, text in FILES.items():
        write(name, text)
    yield write
    forget()


@pytest.mark.parametrize("name", ["a/loops.py", "a/helpers.py", "a/deep.py", "b/places.py"])
def test_what_is_compacted_in_counts_however_far_it_is(package: Callable[[str, str], None], name: str) -> None:
    before = kernel_sources.digest(KERNEL)
    package(name, FILES[name] + "TWO = 2\n")
    assert kernel_sources.digest(KERNEL) != before
    package(name, FILES[name])
    assert kernel_sources.digest(KERNEL) == before


def test_what_is_not_imported_does_not_count(package: Callable[[str, str], None]) -> None:
    before = kernel_sources.digest(KERNEL)
    package("b/other.py", "THREE = 3\n")
    assert kernel_sources.digest(KERNEL) == before


def test_modules_that_import_each_other_have_an_end(package: Callable[[str, str], None]) -> None:
    package("a/deep.py", "from tailrace.a.loops import x\n")
    assert kernel_sources.digest(KERNEL) == kernel_sources.digest("tailrace.a.deep")


def test_a_module_of_others_has_none() -> None:
    assert kernel_sources.digest("numpy.linalg") == ""


def test_kernels_are_kept_under_their_digest() -> None:
    made = arrange_kernels.copy_slices
    digest = kernel_sources.digest(arrange_kernels.__name__)
    assert code_cache.cache_folder() / digest == code_cache.cache_folder_of(made.py_func)  # type: ignore[attr-defined]
    assert digest in Path(made.stats.cache_path).parts  # type: ignore[attr-defined]
