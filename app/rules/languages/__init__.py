"""Languages: which are spoken, which one a person is spoken to in, and how sentences, days and spans read in each."""
