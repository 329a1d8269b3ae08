"""The words of a query, for stages: they say what they want and leave the library to this package."""

from sqlalchemy import Engine, and_, case, delete, exists, func, or_, update
from sqlmodel import Session, col, select

__all__ = ["Engine", "Session", "and_", "case", "col", "delete", "exists", "func", "or_", "select", "update"]
