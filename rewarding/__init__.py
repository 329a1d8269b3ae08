"""From what people did to a number one can defend: extractors, a versioned blend, credit."""
