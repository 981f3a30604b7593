"""The OpenAPI 3.1 document, generated from the endpoints and their models."""
