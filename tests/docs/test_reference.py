"""The references are whole: every name of the Python package, every header."""

from __future__ import annotations

import re

import stead
from documents import BLOCKS
from support import ROOT


def test_every_name_of_the_python_package_is_in_its_reference():
    page = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    shown = {name.rsplit(".", 1)[1] for name in re.findall(r"^::: (stead\.\S+)$", page, flags=re.M)}
    # A page of a module has all of it.
    errors = {name for name in stead.__all__ if getattr(stead, name).__class__ is type and issubclass(getattr(stead, name), stead.Error)}
    assert "_errors" in shown and len(errors) > 10 and "`stead.__version__`" in page
    assert set(stead.__all__) - errors - shown == {"__version__"}
    # What is private is shown by the name that programs use.
    for name in re.findall(r"^::: stead\._(?:stead|kernels)\.(\w+)$", page, flags=re.M):
        assert re.search(rf"^      heading: stead\.{name}$", page, flags=re.M), name


def test_every_header_is_in_a_reference():
    shown = {line for b in BLOCKS if b.page.endswith("-api.md") and b.included for line in b.text.split('"')[1::2]}
    assert shown == {f"include/{p.name}" for p in (ROOT / "include").iterdir()}
