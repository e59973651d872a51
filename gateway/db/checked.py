"""Is what a column holds of the column's type?

SQLite keeps whatever was written, of whatever type; only somebody else's hand writes another. What
does not fit is an error of the database here, not a defect of the reader.
[https://www.sqlite.org/datatype3.html sec. 3]
"""

from typing import Any, Final

from sqlalchemy import BigInteger, Dialect, Integer, LargeBinary, String
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.types import TypeDecorator


class RowDamaged(SQLAlchemyError):
    """A row holds what this program never writes."""

    next_step: Final = "restore a backup of the database: somebody changed a row of it"


class _Checked(TypeDecorator[Any]):
    """The type of ``impl``, and a RowDamaged for a value of any other."""

    cache_ok = True
    _wanted: type

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if value is not None and type(value) is not self._wanted:
            raise RowDamaged(f"a column of {self.impl} holds {type(value).__name__}")
        return value


class CheckedText(_Checked):
    impl = String
    cache_ok = True
    _wanted = str


class CheckedBytes(_Checked):
    impl = LargeBinary
    cache_ok = True
    _wanted = bytes


class CheckedInteger(_Checked):
    impl = Integer
    cache_ok = True
    _wanted = int


class CheckedBigInteger(_Checked):
    impl = BigInteger
    cache_ok = True
    _wanted = int
