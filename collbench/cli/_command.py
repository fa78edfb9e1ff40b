"""What all commands share beyond click: an option is given once, an option that was renamed keeps
its old name for one release.
"""

from collections.abc import Mapping
from typing import ClassVar

import click

from collbench.cli._options import ListOf
from collbench.core.errors import UsageError
from collbench.core.rules import flag
from collbench.core.screen import remark
from collbench.launch.complaint import no_such_option


class StrictCommand(click.Command):
    """A command that refuses repeated options. former_names: old names of options to new ones."""

    former_names: ClassVar[Mapping[str, str]] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = [self._current_name(arg) for arg in args]
        try:
            if not ctx.resilient_parsing:
                self._refuse_repeated(ctx, args)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:  # of -algo click names -a
            name = error.option_name
            written = next((arg for arg in args if arg.startswith(name)), name)
            raise no_such_option(written.partition("=")[0], ctx) from None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

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


def explicit_options(context: click.Context) -> set[str]:
    """The names of the parameters that the command line sets."""
    source = click.core.ParameterSource.COMMANDLINE
    return {name for name in context.params if context.get_parameter_source(name) is source}
