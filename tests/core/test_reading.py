"""Files from anyone: what is too deep, too long or has no end is one error."""

from pathlib import Path

import pytest

from collbench.core.errors import UsageError
from collbench.core.reading import parse_json, parse_toml, read_bytes, read_content, unpacked

DEEP = 20_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = " + "[" * DEEP, "nests too deep"),
        ("a = " + "[" * 300 + "]" * 300, "nests too deep"),
        ("a" + ".a" * 300 + " = 1", "nests too deep"),
        ("a" + " . a" * DEEP + " = 1", "nests too deep"),
        ("a = " + "9" * 5000, "too many digits"),
        ("a = 1979-13-99", "not TOML"),
        ("a", "not TOML"),
    ],
)
def test_toml_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"a.toml: {why}|a.toml: a number has {why}"):
        parse_toml(text, "a.toml")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nests too deep"),
        ("[" * 900 + "]" * 900, "nests too deep"),
        ("9" * 5000, "a number has too many digits"),
        ("NaN", "NaN is no number"),
    ],
)
def test_json_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"a.json: {why}"):
        parse_json(text, "a.json", 1 << 20)


def test_a_device_without_an_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    assert len(read_bytes(Path("/dev/zero"), 10)) > 10
    (tmp_path / "file").write_bytes(b"abc")
    assert read_bytes(tmp_path / "file", 10) == b"abc"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_that_may_not_end_is_no_file(device: str) -> None:
    with pytest.raises(UsageError, match="it is a device, not a file"):
        read_content(device, 1 << 30, "")
    with pytest.raises(OSError, match="it is a device, not a file"):
        unpacked(device)
