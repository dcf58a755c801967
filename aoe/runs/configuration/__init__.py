"""Where the settings of a run come from: options, files, variables, defaults."""
