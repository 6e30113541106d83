"""From classifiers to rows: loading and optimizing them, certifying one or a pool, predicting images of your own."""
