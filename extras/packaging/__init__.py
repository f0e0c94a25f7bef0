"""A policy as a package: a folder to deploy, with model, configuration, model card and the digest of every file."""
