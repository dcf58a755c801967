"""Tables of tuned matrix products and MoE layers that aiter keeps in git."""
