"""Contents of records: strategies of operators, subgraphs and gradients, to JSON and back."""
