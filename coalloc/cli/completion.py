"""`coget completion`: shell completion scripts."""

import click

__all__ = ["completion"]


@click.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes coget's commands, options and files in a shell.

    \b
    To enable it permanently:
      bash  echo 'eval "$(coget completion bash)"' >> ~/.bashrc
      zsh   echo 'eval "$(coget completion zsh)"' >> ~/.zshrc
      fish  coget completion fish > ~/.config/fish/completions/coget.fish
    """
    from click.shell_completion import get_completion_class

    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(maker(ctx.find_root().command, {}, "coget", "_COGET_COMPLETE").source())
