"""What all commands share beyond click: an option is given once, and old names are kept."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import click

from collbench.cli._options import ListOf, OutputFile
from collbench.core.collectives import collective
from collbench.core.complaint import no_such_option
from collbench.core.errors import UsageError
from collbench.core.files import is_foreign
from collbench.core.options import flag
from collbench.core.screen import remark

_FORCE = "collbench.force"
_STDIN = "/dev/stdin"
force_option = click.option(
    "--force",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, value: context.meta.update({_FORCE: value}),
    help="Replace files that are not what this command writes.",
)


# options of earlier versions, by command: what replaced them
_TOPO_INFER = "`doctor` says whether the tree is hidden, `topo --measure` what pairs reach"
_GONE: Mapping[tuple[str | None, str], str] = {
    ("algos", "--msccl"): "such files are only read",
    ("algos", "--svg"): "--html plays the steps",
    ("compare", "--bands"): "the summary has the speedups over a library, and where they are",
    ("compare", "--nccl-rows"): "--tuner writes the file that NCCL's plugin reads",
    ("doctor", "--html"): "--json FILE writes the findings",
    ("hunt", "--blame"): "`collbench trace` names a late rank, hunt the slow host or path",
    ("sweep", "--trace"): "collbench trace --out FILE writes it",
    ("topo", "--budget"): _TOPO_INFER,
    ("topo", "--infer"): _TOPO_INFER,
    ("trace", "--html"): "--out FILE writes the timeline, which ui.perfetto.dev draws",
    ("trace", "--steps"): "--out writes the timeline, `algos --html` plays the steps",
}


class StrictCommand(click.Command):
    """A command that refuses repeated options. former_names: old names of options to new ones."""

    former_names: ClassVar[Mapping[str, str]] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = [self._current_name(arg) for arg in args]
        first = args[:1]  # click empties the list
        try:
            if not ctx.resilient_parsing:
                self._refuse_repeated(ctx, args)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:  # of -algo click names -a
            name = error.option_name
            if instead := _GONE.get((self.name, name)):
                raise UsageError(f"{name} is no option any more", instead) from None
            written = next((arg for arg in args if arg.startswith(name)), name)
            raise no_such_option(written.partition("=")[0], ctx) from None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            self._refuse_bare_op(first)
            raise

    def _refuse_bare_op(self, first: list[str]) -> None:
        """Raise UsageError if the first argument is a collective, which an option takes."""
        if first and any("--op" in param.opts for param in self.params):
            try:
                op = collective(first[0]).name
            except UsageError:
                return
            raise UsageError(f"{first[0]} is the value of an option", f"write --op {op}")

    def invoke(self, ctx: click.Context) -> object:
        self._protect(ctx)
        return super().invoke(ctx)

    def _protect(self, ctx: click.Context) -> None:
        """Raise UsageError for an output that is an input or another output, links resolved, or a
        file that the option did not write.
        """
        read: list[tuple[str, str]] = []
        written: list[tuple[str, str, OutputFile]] = []
        for param in self.params:
            files = _texts(ctx.params.get(str(param.name)))
            if isinstance(param.type, OutputFile):
                written += [(flag(param), file, param.type) for file in files]
            else:
                read += [(flag(param), _STDIN if file == "-" else file) for file in files]
        is_forced = ctx.meta.get(_FORCE) or ctx.params.get("force")
        for place, (name, file, kind) in enumerate(written):
            for other, taken in read:
                # a terminal is read and written, too
                if _are_same(file, taken) and (taken != _STDIN or Path(file).is_file()):
                    raise UsageError(
                        f"{name} {file} would write over what {other} reads", "give another file"
                    )
            for other, taken, _ in written[:place]:
                if _are_same(file, taken):
                    raise UsageError(
                        f"{name}: {other} writes there, too", "give another file to one of them"
                    )
            is_kept = bool(kind.marks) and file != "-" and not is_forced
            if is_kept and is_foreign(Path(file), kind.marks):
                raise UsageError(
                    f"{file} exists, and {name} of this command did not write it",
                    "give another file, or --force to replace it",
                )

    def _current_name(self, arg: str) -> str:
        """An argument with the present name of the option that it names."""
        name, equals, value = arg.partition("=")
        if name not in self.former_names:
            return arg
        current = self.former_names[name]
        remark(f"{name} is now called {current}; the next release drops {name}.")
        return current + equals + value

    def _refuse_repeated(self, ctx: click.Context, args: list[str]) -> None:
        """Raise UsageError for an option that is given twice: click would take the last one."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        seen: set[str | None] = set()
        for param in order:
            if isinstance(param, click.Option) and param.name in seen and not param.multiple:
                is_list = isinstance(param.type, ListOf)
                raise UsageError(
                    f"{flag(param)} is given twice",
                    f"give several values as a comma list: {flag(param)} A,B"
                    if is_list
                    else "give it once",
                )
            seen.add(param.name)


class RanksCommand(StrictCommand):
    """A command whose ranks were once -n, which is of iterations."""

    former_names = {"-n": "-g"}  # noqa: RUF012


def _texts(value: object) -> Iterator[str]:
    """The texts of a parameter's value, which may be a list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


def _are_same(file: str, other: str) -> bool:
    """Whether two names are of one file, which need not exist."""
    with suppress(OSError, ValueError):  # too long, or a NUL in it
        if Path(file).exists() and Path(other).exists():
            return Path(file).samefile(other)
        return os.path.realpath(file) == os.path.realpath(other)
    return False


def declared(
    name: str,
    *options: Callable[[click.Command], click.Command],
    cls: type[StrictCommand] = StrictCommand,
) -> Callable[[Callable[..., object]], click.Command]:
    """A command that gets its context, with options in this order, and --force."""

    def decorated(function: Callable[..., object]) -> click.Command:
        command: click.Command = click.command(name=name, cls=cls)(click.pass_context(function))
        for option in options:
            command = option(command)
        return force_option(command)

    return decorated


def explicit_options(context: click.Context) -> set[str]:
    """The names of the parameters that the command line sets."""
    source = click.core.ParameterSource.COMMANDLINE
    return {name for name in context.params if context.get_parameter_source(name) is source}
