"""One module per API with its request and response, and one per kind of record. Nothing here is imported until used."""
