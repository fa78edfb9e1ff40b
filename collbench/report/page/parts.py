"""What pages of HTML carry: the style, and the hashes by which a policy names what may run."""

import base64
import hashlib
from importlib import resources
from string import Template

from collbench.report.colors import css_classes, css_variables


def part(name: str) -> str:
    """A file of this package."""
    return resources.files("collbench.report.page").joinpath(name).read_text(encoding="utf-8")


def style() -> str:
    """The style sheet, for light and for dark screens."""
    return Template(part("page.css")).substitute(
        light=css_variables(is_dark=False), dark=css_variables(is_dark=True), classes=css_classes()
    )


def hash_of(text: str) -> str:
    """A text as a policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
