"""What a stream of served predictions says: the server and the dashboard both call this."""
