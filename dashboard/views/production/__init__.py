"""What a served model does: numbers since when, alarms, class shares, and recalibration."""
