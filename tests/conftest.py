"""Settings every test shares."""

from hypothesis import settings

settings.register_profile("rs", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("rs")
