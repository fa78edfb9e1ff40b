"""Makes the man pages of a wheel while it is built, from the help of the commands."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface):  # type: ignore[misc]
    """Pages in a folder that lasts as long as the build."""

    PLUGIN_NAME = "custom"
    _folder = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        sys.path.insert(0, self.root)
        from docs.man import man_pages

        self._folder = tempfile.mkdtemp(prefix="collbench-man-")
        for name, make in man_pages():
            (Path(self._folder) / name).write_text(make())
        build_data["shared_data"][self._folder] = "share/man/man1"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        shutil.rmtree(self._folder, ignore_errors=True)
