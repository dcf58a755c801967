"""In which precision a model may compute: what the user allows, operator by operator."""
