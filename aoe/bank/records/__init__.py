"""What records say: strategies of operators, subgraphs and gradients, to JSON and back."""
