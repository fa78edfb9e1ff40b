"""NCCL's files of settings: the lines it reads, the files it reads, and what wins."""

from hypothesis import given
from hypothesis import strategies as st

from collbench.machine.settings.files import Setting, gather, parse, paths


def test_lines_are_read_as_nccl_reads_them() -> None:
    text = "# NCCL_A=1\nNCCL_B=2\r\n\nNCCL_C\n NCCL_D=3 \nNCCL_E==eth0\nNCCL_F=\n=7\nNCCL_G=8"
    assert [(one.name, one.value, one.source) for one in parse(text, "f")] == [
        ("NCCL_B", "2", "f line 2"),
        (" NCCL_D", "3 ", "f line 5"),
        ("NCCL_E", "=eth0", "f line 6"),
        ("NCCL_F", "", "f line 7"),
        ("NCCL_G", "8", "f line 9"),
    ]


def test_the_named_file_replaces_the_one_at_home() -> None:
    assert paths({}) == ("/etc/nccl.conf",)
    assert paths({"HOME": "/h", "NCCL_CONF_FILE": ""}) == ("/h/.nccl.conf", "/etc/nccl.conf")
    assert paths({"HOME": "/h", "NCCL_CONF_FILE": "c"}) == ("c", "/etc/nccl.conf")


def test_what_wins_comes_first() -> None:
    files = [("user", "NCCL_DEBUG=WARN"), ("system", "NCCL_DEBUG=INFO")]
    assert gather({"NCCL_DEBUG": "TRACE"}, files) == (
        Setting("NCCL_DEBUG", "TRACE"),
        Setting("NCCL_DEBUG", "WARN", "user line 1"),
        Setting("NCCL_DEBUG", "INFO", "system line 1"),
    )


@given(st.text())
def test_any_text_is_a_file(text: str) -> None:
    for setting in parse(text, "f"):
        assert f"{setting.name}={setting.value}" in text
        assert setting.name and not setting.name.startswith("#")
