"""LSTM, GRU and RNN: sequences whose every step reads what the one before has made."""
