"""The operator's view: one JSON answer that says everything, and one page that draws it."""
