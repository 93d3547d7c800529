"""The common look of all pages: colours for both themes, number formats, sparklines, and the shell of the templates."""
