"""What a release of NCCL has that we do not know: `python -m docs.nccl_release libnccl.so.2`.

Reads the library's strings, runs nothing of it, and prints names of variables that no table of
profiles/settings has, those of the tables that it lacks, and forms of lines that no kind says. Its
constants have names like variables, so that a person decides which are which: most names of
variables stand alone in the library, and constants beside others of one enumeration.
"""

import re
import sys
from pathlib import Path

from collbench.jobs.nccl_log.kinds import match_of
from collbench.machine.settings.table import known

_STRING = re.compile(rb"[\x20-\x7e\t\n]{4,2000}")
_NAME = re.compile(rb"\bNCCL_[A-Z][A-Z0-9_]{2,60}\b")
_FORMAT = re.compile(r"%(?:ll|l|z)?[dusxpifg]")
_OF_LINE = re.compile(r"(?:NET/|NVLS|Channel|comm |Init |GPU|RAS |P2P|MNNVL|Symmetric|CE )")


def main(library: str) -> None:
    """Print the three lists."""
    data = Path(library).read_bytes()
    found = {match[0].decode() for match in _STRING.finditer(data)}
    names = {name.decode() for name in _NAME.findall(data)}
    table = known()
    new = sorted(name for name in names if table.find(name) is None and name not in table.unread)
    gone = sorted(
        one.name
        for one in table.by_name.values()
        if one.reader == "NCCL" and not one.until and one.name.startswith("NCCL_")
        and not one.is_prefix and one.name not in names
    )  # fmt: skip
    lines = sorted(
        text.strip()
        for text in found
        if _OF_LINE.match(text) and _FORMAT.search(text)
        and match_of(re.sub(r"%[-.\d]*(?:ll|l|z)?[a-zA-Z]", "1", text.strip())) is None
    )  # fmt: skip
    for title, texts in (("in no table", new), ("not in it", gone), ("lines of no kind", lines)):
        sys.stdout.write("\n".join([f"# {title}: {len(texts)}", *texts, "", ""]))


if __name__ == "__main__":
    main(sys.argv[1])
