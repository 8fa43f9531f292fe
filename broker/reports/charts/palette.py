"""The colours of figures: CSS variables, and their values in light and dark mode.

There are six category colours that colour-blind people can distinguish (by Okabe and Ito, the light ones darkened for
white paper), and six steps from low to high values. Pages define the variables; standalone files use the light values.
"""

__all__ = ["CATEGORIES", "DARK", "HABITS", "LIGHT", "SHAPES", "STEPS", "on", "stylesheet"]

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1b1b",
    "muted": "#595959",
    "grid": "#e3e3e3",
    "band": "#bcd9ec",
    "stale": "#d9d9d9",
    "c1": "#0072b2",
    "c2": "#d55e00",
    "c3": "#00875f",
    "c4": "#b85a91",
    "c5": "#a97600",
    "c6": "#6b6b6b",
    "s1": "#e6f1f8",
    "s2": "#b9d8ea",
    "s3": "#85bad8",
    "s4": "#3f8fbd",
    "s5": "#14699f",
    "s6": "#064172",
    "low": "#1b1b1b",
    "high": "#ffffff",
}
DARK = {
    "paper": "#15181b",
    "ink": "#ececec",
    "muted": "#a8adb2",
    "grid": "#343a40",
    "band": "#234a63",
    "stale": "#4a4f54",
    "c1": "#56b4e9",
    "c2": "#ff8a3d",
    "c3": "#2fc497",
    "c4": "#e29bc5",
    "c5": "#f0c243",
    "c6": "#a8adb2",
    "s1": "#24394a",
    "s2": "#264f6e",
    "s3": "#2a658c",
    "s4": "#4d95c4",
    "s5": "#85bfe3",
    "s6": "#cfe8f8",
    "low": "#ffffff",
    "high": "#10151a",
}
CATEGORIES = tuple(f"var(--c{number})" for number in range(1, 7))
SHAPES = ("circle", "triangle-up", "square", "diamond", "cross", "triangle-down")
"""Shapes of the categories, so that no figure depends on colour alone."""
STEPS = tuple(f"var(--s{number})" for number in range(1, 7))
HABITS = {
    "ok": 0,
    "done": 0,
    "succeeded": 0,
    "whole": 0,
    "faster": 0,
    "failed": 1,
    "failures": 1,
    "stolen": 2,
    "shortened": 2,
    "stalled": 4,
    "corrupt": 3,
    "slow": 4,
    "slower": 1,
    "unused": 5,
    "unclear": 5,
}
"""Index of the colour of categories that have the same colour in every figure."""


def on(step: int) -> str:
    """Return the colour of text on the colour of a step, which is counted from 0."""
    return "var(--low)" if step < len(STEPS) // 2 else "var(--high)"


def stylesheet() -> str:
    """Return the style sheet that defines the colours in light and dark mode."""
    return f":root{{{_description(LIGHT)}}}\n@media (prefers-color-scheme:dark){{:root{{{_description(DARK)}}}}}\n"


def _description(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())
