"""The words of a query, for stages: they say what they want and leave the library to this package."""

from sqlalchemy import Engine, case, delete, func, update
from sqlmodel import Session, col, select

__all__ = ["Engine", "Session", "case", "col", "delete", "func", "select", "update"]
