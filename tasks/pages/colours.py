"""The colours of every page and figure, in the light and in the dark."""

LIGHT = {
    "ink": "#1f2430",
    "soft": "#5b6270",
    "faint": "#b9bec8",
    "line": "#dfe2e8",
    "paper": "#fdfdfe",
    "blue": "#0062b0",
    "orange": "#dd6410",
    "green": "#008a60",
    "pink": "#c757a0",
    "gold": "#6e5300",
    "sky": "#259ad3",
    "wine": "#6b1232",
}
DARK = {
    "ink": "#e7e9ee",
    "soft": "#a3aab8",
    "faint": "#5a6170",
    "line": "#343a46",
    "paper": "#14171d",
    "blue": "#4c9bf0",
    "orange": "#f58b3c",
    "green": "#4fd8a6",
    "pink": "#ea8cc6",
    "gold": "#efe07a",
    "sky": "#a5e3fa",
    "wine": "#cf4a66",
}


def variables(colours: dict[str, str]) -> str:
    """The colours as CSS declarations."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())
