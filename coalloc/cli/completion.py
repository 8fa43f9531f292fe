"""`coget completion`: shell completion scripts."""

import click

from coalloc.cli import completion_scripts

__all__ = ["completion"]


@click.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(list(completion_scripts.SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes coget's commands, options and files in a shell.

    \b
    To enable it permanently:
      bash  echo 'eval "$(coget completion bash)"' >> ~/.bashrc
      zsh   echo 'eval "$(coget completion zsh)"' >> ~/.zshrc
      fish  coget completion fish > ~/.config/fish/completions/coget.fish
    """
    click.echo(completion_scripts.script(shell, "coget", ctx.find_root().command, default="get"))
