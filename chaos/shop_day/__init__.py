"""A day in a shop: foreign-looking data through pipelines while all parts are killed, compared row by row."""
