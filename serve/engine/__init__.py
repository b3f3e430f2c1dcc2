"""One deployed file in this process: session, knobs, answer."""
