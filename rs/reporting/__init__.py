"""From rows to tables, pictures and claims. Nothing here computes a certificate."""
