"""How maps are fitted: optimisers, penalties and their strengths, evidence, and shares in a mixture."""
