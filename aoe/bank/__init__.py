"""What the engine knows about banks: operator and gradient banks with their side-cars."""
