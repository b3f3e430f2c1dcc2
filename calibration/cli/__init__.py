"""The commands of calibration, one file each."""
