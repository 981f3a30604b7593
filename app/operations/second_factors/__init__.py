"""Second factors: what a sign-in needs beyond its first proof."""
