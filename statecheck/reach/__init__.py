"""Which lines and branches of the rules and of a subject a campaign executes: the possible ones from their sources, and what ran."""
