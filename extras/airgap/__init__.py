"""Bundles that install kernelmill on a machine without internet: resolved and downloaded here, unpacked there."""
