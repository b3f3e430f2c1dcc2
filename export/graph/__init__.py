"""The deployed graph: body, classifier and the tail that computes the one formula."""
