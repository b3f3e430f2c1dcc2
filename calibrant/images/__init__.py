"""Pictures from disk: decoding, the evaluation transform, and what lies in a folder or file."""
