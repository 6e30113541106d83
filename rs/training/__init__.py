"""The training loop: what every method shares. The methods themselves live in rs.methods."""
