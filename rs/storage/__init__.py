"""Files: written whole or not at all, read strictly; certificate rows and how they are written and continued."""
