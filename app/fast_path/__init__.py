"""Everything that exists only for speed; README.md says what each technique gains and how to switch it off."""
