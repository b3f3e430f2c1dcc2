"""The numbers that pages show: calls of calibrant.calibration, kept as long as files stay what they are."""
