"""The history of a broker: what is sampled, how rings of samples are laid out, and how charts are read from them."""
