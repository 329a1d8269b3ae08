"""The records that stages exchange, and nothing else.

Every arrow between two stages is one of these records, carried by a topic or a table. This package imports pydantic only:
a stage can be read, tested and replaced by knowing what enters and what leaves.
"""
