"""The base of every configuration and data model: frozen, and a key that it does not know is refused."""

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """A value: immutable, hashable where its fields are, strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
