"""How clients prove who they are, and what they hold, at every endpoint that asks."""
