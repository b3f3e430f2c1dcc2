"""Why a confidence is not trusted: each cause is a test with an error rate of its own."""
