"""The three splits: stable by path, disjoint by path and by text, and of the promised sizes."""

from typing import get_args

import pytest

from harness.tiny.corpus import Split, files, split_of

PINNED: dict[str, Split] = {
    "abc.py": "base",
    "ast.py": "heldout",
    "json/decoder.py": "heldout",
    "json/encoder.py": "base",
    "pathlib.py": "heldout",
    "typing.py": "base",
    "tarfile.py": "heldout",
    "enum.py": "base",
    "ctypes/test/test_bytes.py": "traffic",
    "encodings/aliases.py": "traffic",
    "idlelib/format.py": "traffic",
    "lib2to3/fixes/fix_raw_input.py": "traffic",
}


@pytest.mark.parametrize(("path", "split"), PINNED.items())
def test_a_path_keeps_its_split(path: str, split: Split) -> None:
    assert split_of(path) == split


def test_splits_share_neither_paths_nor_texts() -> None:
    splits = [files(split) for split in get_args(Split)]
    for i, one in enumerate(splits):
        for other in splits[i + 1 :]:
            assert not {file.path for file in one} & {file.path for file in other}
            assert not {file.text for file in one} & {file.text for file in other}


def test_order_is_by_path_and_the_same_each_time() -> None:
    paths = [file.path for file in files("traffic")]
    assert paths == sorted(paths)
    assert paths == [file.path for file in files("traffic")]
    assert not any("site-packages" in path for path in paths)


def test_sizes_are_near_82_9_9() -> None:
    counts = [split_of(f"package/module_{n}.py") for n in range(4000)]
    assert 0.79 < counts.count("base") / 4000 < 0.85
    assert 0.07 < counts.count("traffic") / 4000 < 0.11
    assert 0.07 < counts.count("heldout") / 4000 < 0.11
