"""Which options of `compare` have no effect, or would stand in one another."""

from collbench.core.options import Options, Rule

_OF_TWO_FILES = ("json", "junit", "prometheus")
_WRITTEN = ("tuner", "plot", "html")
_DERIVED = ("env", "tuner")
_OF_ONE_FILE = ("against", *_DERIVED)


def _is_one_file(options: Options) -> bool:
    return len(options["files"]) == 1 and not options["bases"]


def _has_no_base(options: Options) -> bool:
    return _is_one_file(options) and options["against"] is None


def _shares_stdout(options: Options) -> bool:
    """Whether a document goes to stdout where something else of one file goes too."""
    options_of_one_file = [name for name in _OF_ONE_FILE if options[name] not in (None, False)]
    return options["tuner"] == "-" and len(options_of_one_file) > 1


COMPARE_RULES = (
    Rule(
        options=("bases",),
        when=lambda options: len(options["files"]) > 1,
        message="the files after the first are bases too, each by itself",
        hint="name the new file, then all runs of its base behind --base",
    ),
    Rule(
        options=("html",),
        when=lambda options: len(options["bases"]) > 1,
        message="a page shows one base",
        hint="give one file with --base",
    ),
    Rule(
        options=("plot",),
        when=lambda options: not _is_one_file(options),
        message="a picture shows one file",
        hint="--html shows what changed",
    ),
    Rule(
        options=_OF_TWO_FILES[1:],
        when=_has_no_base,
        message="there is no base to compare with",
        hint="give a second file, or --against",
    ),
    Rule(
        options=_OF_TWO_FILES,
        when=lambda options: len(options["files"]) > 2,
        message="a document has one comparison",
        hint="give the runs of the base behind --base",
    ),
    Rule(
        options=("allow", "allow_unjudged"),
        when=lambda options: options["fail_below"] is None,
        message="nothing fails without --fail-below",
        hint="give both, or neither",
    ),
    Rule(
        options=_OF_ONE_FILE,
        when=lambda options: options["plot"] is not None,
        message="--plot draws the answers, which these replace",
        hint="give --plot alone",
    ),
    Rule(
        options=(
            "fail_below",
            "allow",
            "allow_unjudged",
            *_OF_TWO_FILES,
            *_OF_ONE_FILE,
            "plot",
            "show_all",
            "across",
        ),
        when=lambda options: options["html"] is not None,
        message="--html stands alone",
        hint="run compare again for the other options",
    ),
    Rule(
        options=("force",),
        when=lambda options: _has_no_base(options) and not any(options[name] for name in _WRITTEN),
        message="there is no base to compare with, and nothing is written",
        hint="give a second file, or --against",
    ),
    Rule(
        options=("fail_below", "across"),
        when=_has_no_base,
        message="there is no base to compare with",
        hint="give a second file, or --against",
    ),
    Rule(
        options=_OF_ONE_FILE,
        when=lambda options: not _is_one_file(options),
        message="for one file only",
        hint="give one file",
    ),
    Rule(
        options=("show_all",),
        when=lambda options: any(options[name] not in (None, False) for name in _DERIVED),
        message="it shows all rows of the answers, which other options replace",
    ),
    Rule(
        options=("tuner",),
        when=_shares_stdout,
        message="a document on stdout stands alone",
        hint="give a file with --tuner, or one of the options",
    ),
)
