"""Changes to Triton's interpreter. The only modules that use Triton's private names (names.py)."""
