"""What pages of HTML share: the style, and the head with the policy of what may run."""

import base64
import hashlib
from importlib import resources
from string import Template

from collbench import __version__
from collbench.core.web.colors import css_classes, css_variables
from collbench.core.web.svg import clean


def part(name: str) -> str:
    """A file of this package."""
    return resources.files("collbench.core.web").joinpath(name).read_text(encoding="utf-8")


def style() -> str:
    """The style sheet, for light and for dark screens."""
    return Template(part("page.css")).substitute(
        light=css_variables(is_dark=False), dark=css_variables(is_dark=True), classes=css_classes()
    )


def document(name: str, title: str, look: str, script: str = "", **parts: str) -> str:
    """A whole page: the head that all have, whose policy names the style and the script, and the
    body of a template, with its parts.
    """
    head = Template(part("head.html")).substitute(
        title=clean(title),
        version=clean(__version__),
        style=look,
        style_hash=_hash_of(look),
        script_policy=f" script-src 'sha256-{_hash_of(script)}';" if script else "",
    )
    body = Template(part(name)).substitute(
        parts, title=clean(title), version=clean(__version__), script=script
    )
    return head + body


def _hash_of(text: str) -> str:
    """A text as a policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
