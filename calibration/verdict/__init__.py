"""Can this confidence be trusted, why not, and what to do: computed here, said by everyone."""
