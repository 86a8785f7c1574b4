"""What compiling a dozen small networks for two CPUs writes, as hashes: a refactor changes none of them."""
