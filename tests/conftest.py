from hypothesis import settings

# On a busy machine one example may take long for no fault of the code.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")
