"""What a server notes about its own answers: log, labels, alarms."""
