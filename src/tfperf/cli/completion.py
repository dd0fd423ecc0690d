"""`tfperf completion`."""

from __future__ import annotations

import click

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a shell script that completes commands, options, sections and causes of `tfperf`.

    \b
    Example:
      tfperf completion bash >> ~/.bashrc
      tfperf completion zsh >> ~/.zshrc
      tfperf completion fish > ~/.config/fish/completions/tfperf.fish
    """
    from click.shell_completion import get_completion_class

    completer = get_completion_class(shell)
    assert completer is not None
    # click reads this environment variable when a shell calls `tfperf`.
    click.echo(completer(context.find_root().command, {}, "tfperf", "_TFPERF_COMPLETE").source())
