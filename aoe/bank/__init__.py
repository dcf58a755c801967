"""Banks as the engine uses them: operator and gradient banks with their side-cars."""
