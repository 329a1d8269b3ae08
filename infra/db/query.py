"""The words of a query, for stages: they say what they want and leave the library to this package."""

from sqlalchemy import Engine, bindparam, case, delete, func, insert, update
from sqlmodel import Session, col, select

__all__ = ["Engine", "Session", "bindparam", "case", "col", "delete", "func", "insert", "select", "update"]
